"""A machine of files and variables that exist in a table."""

from collections.abc import Mapping

from holdfast.egress.clients.packages import Surroundings


def machine(
    files: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    programs: Mapping[str, str] | None = None,
    pip: str | None = None,
) -> Surroundings:
    """The home is /home/u."""
    known = dict(files or {})

    def names(folder: str) -> list[str]:
        return sorted(
            {
                path.removeprefix(f"{folder}/").partition("/")[0]
                for path in known
                if path.startswith(f"{folder}/")
            }
        )

    return Surroundings(environ or {}, "/home/u", known.get, names, (programs or {}).get, lambda: pip)
