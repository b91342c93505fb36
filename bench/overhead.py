"""What a full view costs beyond a bare spawn: the launcher alone, from the order to the command's end."""

import asyncio
import os
import time

from bench.confined import workspace
from bench.measures import MS, Contest
from holdfast.confine.launch import LauncherClient
from holdfast.confine.starts import Command, Confinement, Exit, plan_of
from holdfast.sandbox.plan.resolve import locate
from holdfast.sandbox.plan.select import Way
from holdfast.sandbox.policy.policy import bind, workspace_write


def launch_overhead(contest: Contest) -> list[float]:
    """Confined minus bare, in pairs, as root without a user namespace or as anybody with one."""
    return asyncio.run(_differences(contest))


async def _differences(contest: Contest) -> list[float]:
    folder = str(workspace(contest))
    view, _ = plan_of(bind(workspace_write(), locate(folder, [folder], os.environ)), folder)
    way = Way.USER_NAMESPACE if os.getuid() else Way.AS_ROOT
    confinement = Confinement(view, way)
    launcher = LauncherClient()
    launcher.open()
    try:
        count = contest.plan.warm + contest.plan.starts
        pairs = [
            (await _life(launcher, folder), await _life(launcher, folder, confinement)) for _ in range(count)
        ]
    finally:
        await launcher.aclose()
    return [(confined - bare) * MS for bare, confined in pairs[contest.plan.warm :]]


async def _life(launcher: LauncherClient, folder: str, confinement: Confinement | None = None) -> float:
    ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        began = time.perf_counter()
        await launcher.start(
            Command(("/bin/true",), "/bin/true", folder, {}),
            owner=1,
            streams=(null, null, null),
            tty=False,
            state=None,
            on_exit=ended.set_result,
            confinement=confinement,
        )
        await ended
        return time.perf_counter() - began
    finally:
        os.close(null)
