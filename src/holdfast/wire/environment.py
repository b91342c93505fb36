"""Messages of the handshake and about the executor itself. Pure module."""

from typing import Literal

import msgspec

from holdfast.wire.paths import PathUri
from holdfast.wire.structs import MethodResult, Params


class InitializeParams(Params, frozen=True):
    client_name: str
    resume_session_id: str | None = None
    holdfast: bool = False  # ours: the client understands our additions, so the server sends them


class ShellInfo(msgspec.Struct, frozen=True):
    name: str
    path: str


class Capabilities(MethodResult, frozen=True):
    """What a client may use. The first block is the reference's, the second is ours."""

    capability_discovery_sandbox: bool = False
    capability_discovery_v2: bool = msgspec.field(default=False, name="capabilityDiscoveryV2")
    credential_masking: bool = False
    credential_masking_custom_providers: bool = False
    environment_config_read: bool = False
    file_write_streaming: bool = False
    fs_watch_missing: bool = False
    http_header_env_vars: bool = False
    linux_approved_root_write_preserves_restrictions: bool = False
    linux_root_write_preserves_devices: bool = False
    network_proxy_launch: bool = False
    network_proxy_review_domains: bool = False
    sandboxed_file_streaming: bool = False
    shell_snapshot_v2: bool = msgspec.field(default=False, name="shellSnapshotV2")

    holdfast_ask_hosts: bool = False
    holdfast_close_stdin: bool = False
    holdfast_commands: bool = False
    holdfast_limits: bool = False
    holdfast_resize: bool = False
    holdfast_secrets: bool = False
    holdfast_signals: bool = False
    holdfast_usage: bool = False
    holdfast_watch: bool = False


class EnvironmentInfo(MethodResult, frozen=True, omit_defaults=True):
    shell: ShellInfo
    cwd: str | None = None
    temporary_directories: list[str] | None = None
    temp_dir: str | None = None
    capabilities: Capabilities = Capabilities()
    executor_version: str | None = None
    provider_id: str | None = None
    user_home_dir: str | None = None
    platform_os: str | None = None
    prepend_path_dirs: list[str] | None = None


class InitializeResult(MethodResult, frozen=True):
    session_id: str
    environment_info: EnvironmentInfo


class EnvironmentStatus(MethodResult, frozen=True):
    status: Literal["ready"] = "ready"


class EnvironmentConfigReadParams(Params, frozen=True):
    cwd: PathUri
    config_paths: list[list[str]]
    requirements_paths: list[list[str]]


class ConfigLayer(MethodResult, frozen=True):
    source: str
    base_dir: str
    toml: str


class LayerStack(MethodResult, frozen=True):
    layers: list[ConfigLayer]
    cloud_insertion_index: int = 0


class EnvironmentConfig(MethodResult, frozen=True):
    user_home_dir: str | None
    codex_home_dir: str
    hostname: str | None
    config: LayerStack
    requirements: LayerStack
