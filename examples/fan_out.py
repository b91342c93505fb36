"""Many jobs over the environments of a file: whoever is free takes the next one.

    python examples/fan_out.py examples/environments.toml

A job whose environment is lost goes to another one; work stays undone only when all of them are lost.
"""

import asyncio
import sys

from holdfast import ConnectionLost, Environments, HoldfastError, SessionLost

JOBS = [f"echo $(({number} * {number}))" for number in range(1, 13)]


async def work(name: str, environments: Environments, jobs: asyncio.Queue[str], done: dict[str, str]) -> None:
    try:
        env = await environments.get(name)
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


async def fan_out(environments: Environments) -> dict[str, str]:
    jobs, done = asyncio.Queue[str](), dict[str, str]()
    for job in JOBS:
        jobs.put_nowait(job)
    finished = asyncio.ensure_future(jobs.join())
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work(name, environments, jobs, done)) for name in environments.ids]
        finished.add_done_callback(lambda _: [worker.cancel() for worker in workers])
    finished.cancel()
    return done


async def main(file: str) -> int:
    async with Environments.load(file) as environments:
        done = await fan_out(environments)
    for job in JOBS:
        print(f"{job:20}{done.get(job, 'not done')}")
    return len(JOBS) - len(done)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
