"""Many jobs over the environments of a file: whoever is free takes the next one.

    python examples/fan_out.py examples/environments.toml

A job whose environment is lost goes to another one; work stays undone only when all of them are lost.
"""

import asyncio
import sys
import tomllib
from pathlib import Path
from typing import TypeAlias

import holdfast
from holdfast import ConnectionLost, HoldfastError, SessionLost

Address: TypeAlias = str | list[str]
JOBS = [f"echo $(({number} * {number}))" for number in range(1, 13)]


def addresses(file: Path) -> dict[str, Address]:
    listed = tomllib.loads(file.read_text("utf-8"))["environments"]
    return {each["id"]: each.get("url") or [each["program"], *each.get("args", [])] for each in listed}


async def work(name: str, address: Address, jobs: asyncio.Queue[str], done: dict[str, str]) -> None:
    try:
        async with holdfast.connect(address) as env:
            while True:
                job = await jobs.get()
                try:
                    result = await env.run(["/bin/sh", "-c", job])
                    done[job] = f"{result.stdout.decode().strip():8}{name}"
                except (ConnectionLost, SessionLost):
                    jobs.put_nowait(job)
                    raise
                finally:
                    jobs.task_done()
    except HoldfastError as error:
        print(f"{name} is out: {error}", file=sys.stderr)


async def fan_out(environments: dict[str, Address]) -> dict[str, str]:
    jobs, done = asyncio.Queue[str](), dict[str, str]()
    for job in JOBS:
        jobs.put_nowait(job)
    finished = asyncio.ensure_future(jobs.join())
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work(*each, jobs, done)) for each in environments.items()]
        finished.add_done_callback(lambda _: [worker.cancel() for worker in workers])
    finished.cancel()
    return done


def main(file: Path) -> int:
    done = asyncio.run(fan_out(addresses(file)))
    for job in JOBS:
        print(f"{job:20}{done.get(job, 'not done')}")
    return len(JOBS) - len(done)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
