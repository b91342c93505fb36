"""What the doctor is told of agents by records."""

from pathlib import Path

from holdfast.agents.catalog.catalog import FILE
from holdfast.agents.catalog.known import read_known
from holdfast.agents.installed import describe_installed


def test_the_doctor_runs_no_program_that_only_a_user_s_record_names(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('[mine]\nbinary = "reboot"\nheadless = ["{prompt}"]\n')
    found = {agent.name: agent for agent in describe_installed(read_known(tmp_path))}
    assert found["mine"].version_argv == ("reboot",)
    assert found["goose"].version_argv == ("goose", "--version")
    assert found["goose"].credentials == (".config/goose/secrets.yaml",)
    assert found["pi"].moved_by == "PI_CODING_AGENT_DIR"
    assert "codex" not in found, "ours are looked for anyway"
