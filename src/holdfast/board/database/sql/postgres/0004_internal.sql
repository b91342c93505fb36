-- A run may fail by a fault of our own: `internal`.

ALTER TABLE runs DROP CONSTRAINT runs_failure_check;
ALTER TABLE runs ADD CONSTRAINT runs_failure_check
    CHECK (failure IN ('quota', 'auth', 'infra', 'handoff', 'task', 'internal'));
