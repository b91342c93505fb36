from holdfast.agents.worker.book import KEPT_BYTES, KEPT_S, SPARED_S, EndedWorker, choose_oldest

NOW = 1e9


def names(*ended: EndedWorker, **more: float) -> list[str]:
    return [one.id for one in choose_oldest(ended, NOW, **more)]  # type: ignore[arg-type]


def test_what_ended_long_ago_goes_and_what_did_not_stays() -> None:
    assert names(EndedWorker("old", NOW - KEPT_S, 1), EndedWorker("new", NOW - KEPT_S + 1, 1)) == ["old"]
    assert names(EndedWorker("any", NOW, 1), kept_s=0.0) == ["any"]


def test_of_too_much_the_oldest_go_until_the_rest_fits() -> None:
    day = 86400.0
    three = [EndedWorker(f"w{n}", NOW - n * day, KEPT_BYTES // 2) for n in (1, 2, 3)]
    assert names(*three) == ["w3"]
    assert names(*three, kept_bytes=0) == ["w3", "w2", "w1"]


def test_what_has_just_ended_is_not_removed_for_its_size() -> None:
    assert names(EndedWorker("now", NOW - SPARED_S + 1, KEPT_BYTES * 2)) == []
    assert names(EndedWorker("now", NOW - SPARED_S, KEPT_BYTES * 2)) == ["now"]
