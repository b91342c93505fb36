"""CLIs that tell what they do only in words: aider, Hermes, and any other program. Pure module."""

import re

from holdfast.agents.catalog.agent import (
    CANNOT_START,
    NOT_SAVED,
    Agent,
    Package,
    Provider,
    RetrySign,
    StatePath,
    Versions,
    WantSign,
)
from holdfast.agents.evidence.evidence import Failure, Want
from holdfast.agents.evidence.verdict import ExitRules

# Without these it edits .gitignore, and says much of itself before it begins.
_AIDER_QUIET = ("--no-gitignore", "--no-check-update", "--no-show-model-warnings", "--no-show-release-notes")

AIDER = Agent(
    name="aider",
    binary="aider",
    package=Package("pypi", "aider-chat"),
    versions=Versions((0, 80), (1, 0), "0.86.2"),
    headless=("{model}", "{unattended}", "--no-pretty", *_AIDER_QUIET, "--message", "{prompt}"),
    interactive=("{model}", *_AIDER_QUIET),
    model_options=("--model", "{model}"),
    unattended=("--yes-always",),
    ready=(re.compile(r"^(?:\w+ )?> ?$", re.MULTILINE),),
    wants=(WantSign(re.compile(r"\(Y\)es/\(N\)o"), Want.DECISION),),
    retries=(RetrySign(re.compile(r"^Retrying in (?P<in_s>[\d.]+) seconds")),),
    state=(
        StatePath("{home}/.aider", "aider's home", NOT_SAVED),
        StatePath("{work}/.aider.tags.cache.v4", "aider's cache of names", NOT_SAVED),
        StatePath("{work}/.git/config*", "the repository's settings, which aider edits", CANNOT_START),
    ),
    environment={"AIDER_ANALYTICS": "false", "NO_COLOR": "1"},
    exits=ExitRules(zero_means_success=False),
    provider=Provider(
        wire="chat",
        environment={"OPENAI_API_BASE": "{base}/v1", "OPENAI_API_KEY": "{key}"},
        model="openai/{model}",
    ),
)

HERMES = Agent(
    name="hermes",
    binary="hermes",
    package=Package("pypi", "hermes-agent"),
    versions=Versions((0, 18), (1, 0), "0.19.0"),
    subcommand=("chat",),
    headless=("-Q", "{unattended}", "{model}", "-q", "{prompt}"),
    interactive=("chat", "{model}"),
    model_options=("-m", "{model}"),
    unattended=("--yolo",),
    acp=("acp",),
    retries=(
        RetrySign(
            re.compile(r"API call failed \(attempt (?P<attempt>\d+)/(?P<of>\d+)\)(?:: (?P<cause>.*))?"),
        ),
    ),
    state=(
        StatePath("{home}/.hermes/state.db*", "hermes' database", CANNOT_START, "HERMES_HOME", "state.db*"),
        StatePath("{home}/.hermes", "hermes' home", CANNOT_START, "HERMES_HOME"),
        StatePath("{home}/.cache", "the cache of the packages it fetches", NOT_SAVED, "XDG_CACHE_HOME"),
    ),
    relocation={"HERMES_HOME": "{state}/home", "XDG_CACHE_HOME": "{state}/cache"},
    exits=ExitRules(zero_means_success=False),
    provider=Provider(
        wire="chat",
        environment={"OPENAI_API_KEY": "{key}"},
        files={
            "home/config.yaml": 'model:\n  provider: custom\n  base_url: "{base}/v1"\n  default: "{model}"\n'
        },
    ),
)

SHELL = Agent(
    name="shell",
    binary="sh",
    package=None,
    versions=None,
    headless=("-c", "{prompt}"),
    stderr_is_work=True,
    exits=ExitRules(zero_means_success=True, codes={126: Failure.LAUNCH, 127: Failure.LAUNCH}),
)
