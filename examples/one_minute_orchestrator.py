"""Three confined jobs on another machine, side by side, all of it within a minute.

    python examples/one_minute_orchestrator.py [ADDRESS]

Without an address the jobs run on this machine, on a server of their own.
"""

import asyncio
import sys

import holdfast
from holdfast import Environment, Policy, Result

SERVER_OF_OUR_OWN = [sys.executable, "-m", "holdfast", "serve", "--listen", "stdio"]
BUDGET_S = 60
SCRIPT = 'greet() { echo "hello, $1"; }\n'
TEST = '. ./greet.sh; [ "$(greet you)" = "hello, you" ] && echo "1 passed"'
JOBS = {
    "check": ["/bin/sh", "-n", "greet.sh"],
    "test": ["/bin/sh", "test.sh"],
    "publish": ["/bin/cp", "greet.sh", "/usr/share/greet.sh"],  # not what this policy allows
}


async def prepare_workspace(env: Environment) -> str:
    made = await env.run(["mktemp", "-d"])
    workspace = made.stdout.decode().strip()
    await env.files.write(f"{workspace}/greet.sh", SCRIPT)
    await env.files.write(f"{workspace}/test.sh", TEST)
    return workspace


async def run_jobs(env: Environment, workspace: str) -> dict[str, Result]:
    policy = Policy.workspace_write(workspace, network=False)
    async with asyncio.TaskGroup() as group:
        tasks = {
            name: group.create_task(env.run(command, cwd=workspace, policy=policy))
            for name, command in JOBS.items()
        }
    return {name: task.result() for name, task in tasks.items()}


def report(name: str, result: Result) -> None:
    print(f"{name:10}{'ok' if result.code == 0 else f'failed with {result.code}'}")
    for line in (result.stdout + result.stderr).decode(errors="replace").splitlines():
        print(f"          {line}")
    if result.denial is not None:
        print(f"          denied: {result.denial.access} {result.denial.path}, by {result.denial.rule}")
        print(f"          to allow it: {result.denial.grant}")


async def main(address: str | list[str]) -> int:
    async with asyncio.timeout(BUDGET_S), holdfast.connect(address) as env:
        workspace = await prepare_workspace(env)
        try:
            results = await run_jobs(env, workspace)
        finally:
            await env.files.remove(workspace, recursive=True)
    for name, result in results.items():
        report(name, result)
    return sum(result.code != 0 for result in results.values())


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1] if sys.argv[1:] else SERVER_OF_OUR_OWN)))
