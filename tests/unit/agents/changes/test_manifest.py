from holdfast.agents.changes.manifest import CUT, MAX_DIFF, MAX_LISTED, Manifest, ManifestEntry, compare


def text(words: str, *, at: int = 1, mode: int = 0o644) -> ManifestEntry:
    return ManifestEntry("file", len(words), at, mode, words)


def test_nothing_changed_when_only_times_did() -> None:
    found = compare(Manifest({"a": text("x")}), Manifest({"a": text("x", at=2)}))
    assert (found.count, found.paths, found.diff) == (0, (), "")


def test_added_changed_and_removed_files_are_told_as_a_patch() -> None:
    before = Manifest({"gone": text("1\n"), "kept": text("k"), "other": text("a\nb\n")})
    after = Manifest({"kept": text("k"), "new": text("n\n", mode=0o755), "other": text("a\nc")})
    found = compare(before, after)
    assert found.paths == ("D gone", "A new", "M other")
    assert "deleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n" in found.diff
    assert "new file mode 100755\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n" in found.diff
    assert " a\n-b\n+c\n\\ No newline at end of file\n" in found.diff


def test_a_file_that_is_no_text_is_told_in_words() -> None:
    before = Manifest({"a": ManifestEntry("file", 5, 1, 0o644)})
    found = compare(before, Manifest({"a": ManifestEntry("file", 7, 2, 0o644)}))
    assert found.paths == ("M a",)
    assert "5 bytes to 7 bytes" in found.diff


def test_a_mode_and_a_link_are_changes_too() -> None:
    before = Manifest({"run": text("x"), "l": ManifestEntry("link", 0, 0, 0, "a")})
    after = Manifest({"run": text("x", mode=0o755), "l": ManifestEntry("link", 0, 0, 0, "b")})
    found = compare(before, after)
    assert found.paths == ("M l", "M run")
    assert "old mode 100644\nnew mode 100755\n" in found.diff


def test_diff_and_list_are_bounded() -> None:
    many = Manifest({f"f{n:05}": text("x" * 2000) for n in range(MAX_LISTED + 1)})
    found = compare(Manifest(), many)
    assert found.count == MAX_LISTED + 1
    assert len(found.paths) == MAX_LISTED
    assert found.diff.endswith(CUT)
    assert len(found.diff) <= MAX_DIFF + len(CUT)
