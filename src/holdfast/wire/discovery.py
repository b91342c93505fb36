"""Messages about plugins and skills on the executor. Pure module."""

from holdfast.wire.paths import PathUri
from holdfast.wire.permissions import SandboxContext
from holdfast.wire.structs import MethodResult, Params


class CapabilityRoot(Params, frozen=True):
    id: str
    path: PathUri
    sandbox: SandboxContext | None = None


class DiscoverRootsParams(Params, frozen=True):
    roots: list[CapabilityRoot]


class DiscoverySandbox(SandboxContext, frozen=True, rename="camel", kw_only=True):
    """A context that always has a working directory."""

    cwd: PathUri


class DiscoverParams(Params, frozen=True):
    cwd: PathUri
    sandbox: DiscoverySandbox | None = None


class CapabilityFile(MethodResult, frozen=True):
    path: str
    contents: str


class PluginFiles(MethodResult, frozen=True):
    manifest: CapabilityFile
    mcp_config: CapabilityFile | None
    apps_config: CapabilityFile | None


class SkillFiles(MethodResult, frozen=True):
    instructions: CapabilityFile
    metadata: CapabilityFile | None


class RootDiscovery(MethodResult, frozen=True):
    id: str
    path: str
    plugin: PluginFiles | None
    skills: list[SkillFiles]
    namespace_manifests: list[CapabilityFile]
    warnings: list[str]
    error: str | None


class DiscoverRootsResult(MethodResult, frozen=True):
    roots: list[RootDiscovery]


class DiscoveryOrigin(MethodResult, frozen=True):
    id: str
    path: str


class ToolDependency(MethodResult, frozen=True):
    type: str
    value: str
    description: str | None
    transport: str | None
    command: str | None
    url: str | None
    oauth_callback_port: int | None


class SkillDependencies(MethodResult, frozen=True):
    tools: list[ToolDependency]


class SkillPolicy(MethodResult, frozen=True):
    allow_implicit_invocation: bool | None
    products: list[str]


class PluginSkill(MethodResult, frozen=True):
    name: str
    description: str
    short_description: str | None
    path: str
    dependencies: SkillDependencies | None
    policy: SkillPolicy | None


class Skill(PluginSkill, frozen=True):
    discovery_root: DiscoveryOrigin


class Plugin(MethodResult, frozen=True):
    id: str
    display_name: str
    remote_plugin_id: str | None
    version: str
    root: str
    files: PluginFiles
    skills: list[PluginSkill]


class DiscoverResult(MethodResult, frozen=True):
    plugins: list[Plugin]
    skills: list[Skill]
    warnings: list[str]
