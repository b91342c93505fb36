"""No logic stands in two places."""

from tools import duplicates

BODY = "    a = 1\n    b = a\n    c = b\n    d = c\n    e = d\n    return e\n"


def test_the_source_says_nothing_twice() -> None:
    assert duplicates.of_source() == []


def test_six_lines_of_two_functions_are_found_whatever_stands_between_them() -> None:
    other = BODY.replace("    c", "\n    # another comment\n    c")
    [one] = duplicates.find({"x": f"def f():\n{BODY}", "y": f"def g(a: int):\n{other}"})
    assert one == duplicates.Duplicate("x", 2, "y", 2, 6)


def test_what_only_declares_does_not_count() -> None:
    fields = "".join(f"    {name}: int\n" for name in "abcdefgh")
    table = "T = (\n" + "".join(f"    {number},\n" for number in range(10)) + ")\n"
    source = f"{table}class C:\n{fields}"
    assert list(duplicates.find({"x": source, "y": source})) == []
