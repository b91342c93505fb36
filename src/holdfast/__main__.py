"""`python -m holdfast`."""

from holdfast.entry import main

main()
