-- Boards, tasks, links, runs, comments, answers that were given, events.
-- The checks repeat what the code keeps, so that no mistake of the code gets past the store.

CREATE TABLE boards (
    slug TEXT COLLATE "C" PRIMARY KEY,
    title TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    last_seq BIGINT NOT NULL DEFAULT 0 CHECK (last_seq >= 0)
);

CREATE TABLE transitions (
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    PRIMARY KEY (before, after)
);

INSERT INTO transitions (before, after) VALUES
    ('cancelled', 'archived'),
    ('done', 'archived'),
    ('failed', 'archived'), ('failed', 'done'), ('failed', 'ready'), ('failed', 'todo'),
    ('handoff_failed', 'cancelled'), ('handoff_failed', 'done'), ('handoff_failed', 'ready'), ('handoff_failed', 'todo'),
    ('ready', 'cancelled'), ('ready', 'done'), ('ready', 'running'), ('ready', 'scheduled'), ('ready', 'todo'), ('ready', 'triage'), ('ready', 'waiting_human'),
    ('review', 'cancelled'), ('review', 'done'), ('review', 'ready'), ('review', 'todo'), ('review', 'waiting_human'),
    ('running', 'cancelled'), ('running', 'done'), ('running', 'failed'), ('running', 'handoff_failed'), ('running', 'review'), ('running', 'waiting_human'), ('running', 'waiting_system'),
    ('scheduled', 'cancelled'), ('scheduled', 'done'), ('scheduled', 'ready'), ('scheduled', 'todo'), ('scheduled', 'triage'), ('scheduled', 'waiting_human'),
    ('todo', 'cancelled'), ('todo', 'done'), ('todo', 'ready'), ('todo', 'scheduled'), ('todo', 'triage'), ('todo', 'waiting_human'),
    ('triage', 'cancelled'), ('triage', 'done'), ('triage', 'ready'), ('triage', 'todo'),
    ('waiting_human', 'cancelled'), ('waiting_human', 'done'), ('waiting_human', 'ready'), ('waiting_human', 'scheduled'), ('waiting_human', 'todo'), ('waiting_human', 'triage'),
    ('waiting_system', 'cancelled'), ('waiting_system', 'done'), ('waiting_system', 'ready'), ('waiting_system', 'scheduled'), ('waiting_system', 'todo'), ('waiting_system', 'waiting_human');

CREATE TABLE tasks (
    id TEXT COLLATE "C" PRIMARY KEY,
    board TEXT COLLATE "C" NOT NULL REFERENCES boards (slug),
    title TEXT NOT NULL CHECK (length(title) BETWEEN 1 AND 500),
    body TEXT NOT NULL,
    assignee TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('triage', 'todo', 'scheduled', 'ready', 'running', 'waiting_human', 'waiting_system', 'review', 'handoff_failed', 'done', 'failed', 'cancelled', 'archived')),
    priority BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    created_by_run TEXT,
    created_ms BIGINT NOT NULL,
    status_ms BIGINT NOT NULL,
    ended_ms BIGINT,
    open_parents BIGINT NOT NULL CHECK (open_parents >= 0),
    run_id TEXT COLLATE "C",
    generation BIGINT NOT NULL CHECK (generation >= 0),
    attempts BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    wake_ms BIGINT,
    question TEXT,
    options TEXT NOT NULL,
    waiting_for TEXT NOT NULL,
    reason TEXT NOT NULL,
    result TEXT,
    version BIGINT NOT NULL,
    CHECK (attempts BETWEEN 0 AND max_attempts),
    CHECK (status <> 'ready' OR open_parents = 0),
    CHECK (status <> 'todo' OR open_parents > 0),
    CHECK (status NOT IN ('ready', 'todo') OR attempts < max_attempts),
    CHECK ((status = 'running') = (run_id IS NOT NULL)),
    CHECK ((status IN ('scheduled', 'waiting_system')) = (wake_ms IS NOT NULL)),
    CHECK ((status = 'waiting_human') = (question IS NOT NULL)),
    CHECK ((status IN ('done', 'failed', 'cancelled', 'archived')) = (ended_ms IS NOT NULL))
);

CREATE INDEX tasks_ready ON tasks (board, priority DESC, created_ms, id) WHERE status = 'ready';
CREATE INDEX tasks_ready_of ON tasks (board, assignee, priority DESC, created_ms, id) WHERE status = 'ready';
CREATE UNIQUE INDEX tasks_held ON tasks (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX tasks_timed ON tasks (board, wake_ms) WHERE wake_ms IS NOT NULL;
CREATE INDEX tasks_page ON tasks (board, created_ms DESC, id DESC);
CREATE INDEX tasks_status_page ON tasks (board, status, created_ms DESC, id DESC);
CREATE INDEX tasks_assignee_page ON tasks (board, assignee, created_ms DESC, id DESC);

CREATE TABLE links (
    parent TEXT COLLATE "C" NOT NULL REFERENCES tasks (id),
    child TEXT COLLATE "C" NOT NULL REFERENCES tasks (id),
    open BIGINT NOT NULL CHECK (open IN (0, 1)),
    PRIMARY KEY (parent, child),
    CHECK (parent <> child)
);

CREATE INDEX links_child ON links (child);

CREATE TABLE runs (
    id TEXT COLLATE "C" PRIMARY KEY,
    task_id TEXT COLLATE "C" NOT NULL REFERENCES tasks (id),
    board TEXT COLLATE "C" NOT NULL REFERENCES boards (slug),
    generation BIGINT NOT NULL CHECK (generation > 0),
    worker TEXT NOT NULL,
    host TEXT NOT NULL,
    profile TEXT NOT NULL,
    lease_until_ms BIGINT NOT NULL,
    heartbeat_ms BIGINT NOT NULL,
    note TEXT NOT NULL,
    started_ms BIGINT NOT NULL,
    ended_ms BIGINT,
    outcome TEXT CHECK (outcome IN ('completed', 'blocked', 'waiting', 'review_requested', 'failed', 'lost',
        'handoff_failed', 'superseded', 'cancelled')),
    failure TEXT CHECK (failure IN ('quota', 'auth', 'infra', 'handoff', 'task')),
    summary TEXT,
    metadata TEXT NOT NULL,
    error TEXT,
    UNIQUE (task_id, generation),
    CHECK ((outcome IS NULL) = (ended_ms IS NULL)),
    CHECK (failure IS NULL OR outcome IN ('failed', 'lost', 'handoff_failed'))
);

CREATE UNIQUE INDEX runs_open ON runs (task_id) WHERE outcome IS NULL;
CREATE INDEX runs_lease ON runs (board, lease_until_ms) WHERE outcome IS NULL;

CREATE TABLE comments (
    task_id TEXT COLLATE "C" NOT NULL REFERENCES tasks (id),
    number BIGINT NOT NULL,
    author TEXT NOT NULL,
    body TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    run_id TEXT COLLATE "C" REFERENCES runs (id),
    PRIMARY KEY (task_id, number)
);

-- What was answered under a key of the caller's choice; the same question gets the same answer.
CREATE TABLE answers (
    scope TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    question TEXT NOT NULL,
    answer TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (scope, name)
);

CREATE TABLE caps (
    board TEXT COLLATE "C" NOT NULL REFERENCES boards (slug),
    scope TEXT NOT NULL CHECK (scope IN ('board', 'profile', 'host')),
    name TEXT NOT NULL,
    most BIGINT NOT NULL CHECK (most >= 0),
    PRIMARY KEY (board, scope, name)
);

CREATE TABLE events (
    board TEXT COLLATE "C" NOT NULL REFERENCES boards (slug),
    seq BIGINT NOT NULL CHECK (seq > 0),
    task_id TEXT COLLATE "C" REFERENCES tasks (id),
    run_id TEXT COLLATE "C",
    kind TEXT NOT NULL,
    actor TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (board, seq)
);

CREATE INDEX events_task ON events (task_id, seq);

ALTER TABLE tasks ADD CONSTRAINT tasks_run FOREIGN KEY (run_id) REFERENCES runs (id) DEFERRABLE INITIALLY DEFERRED;

CREATE FUNCTION refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'illegal transition' USING ERRCODE = 'check_violation'; END $$;

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'events are never changed' USING ERRCODE = 'check_violation'; END $$;

CREATE FUNCTION is_transition(source text, target text) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT EXISTS (SELECT 1 FROM transitions WHERE before = source AND after = target) $$;

CREATE TRIGGER tasks_move BEFORE UPDATE OF status ON tasks FOR EACH ROW
WHEN (OLD.status <> NEW.status AND NOT is_transition(OLD.status, NEW.status))
EXECUTE FUNCTION refuse_move();

CREATE TRIGGER events_stay BEFORE UPDATE OR DELETE ON events FOR EACH ROW EXECUTE FUNCTION refuse_change();
