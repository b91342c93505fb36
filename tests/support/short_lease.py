"""A dispatcher whose lease is short: python -m tests.support.short_lease HOME STORE HOST MOST LEASE_MS"""

import asyncio
import sys
from pathlib import Path

from holdfast import log
from holdfast.dispatch.dispatcher import DispatchOptions, serve


def main() -> None:
    home, address, host, most, lease_ms = sys.argv[1:]
    log.set_up(style="text", level="error")  # that the board does not answer is what it is here for
    plan = DispatchOptions(("b",), int(most), lease_ms=int(lease_ms))
    asyncio.run(serve(Path(home), address, plan, host=host))


if __name__ == "__main__":
    main()
