"""An executor and a client of ours that meet through a registry and a relay."""

from tests.support.relayservice import executing, reached, relay_service


async def test_a_command_runs_through_a_relay_that_reads_nothing_of_it() -> None:
    async with relay_service() as service, executing(service), reached(service) as environment:
        result = await environment.run(["/bin/sh", "-c", "cat; exit 3"], input=b"unheard-of")
        assert (result.stdout, result.code) == (b"unheard-of", 3)
        carried = b"".join(raw for _, raw in service.seen)
        for word in (b"unheard-of", b"initialize", b"process/start", b"holdfast", b"/bin/sh"):
            assert word not in carried
