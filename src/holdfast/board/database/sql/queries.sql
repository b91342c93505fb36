-- Every question the board asks, by name, for both dialects. A colon marks a value. `LOCK ROWS`, `LOCK FREE ROWS` and `LOCK BOARD`
-- are the row locks of PostgreSQL; in SQLite a writer is alone anyway, and they are left out. `SPENT` is said of a task whose runs
-- have used all they may; it looks at the runs of tasks that have a budget only.

-- name: board_add
INSERT INTO boards (slug, title, created_ms) VALUES (:slug, :title, :now) ON CONFLICT (slug) DO NOTHING RETURNING *;

-- name: board_get
SELECT * FROM boards WHERE slug = :slug;

-- name: board_lock
SELECT * FROM boards WHERE slug = :slug LOCK BOARD;

-- name: board_stand
UPDATE boards SET paused = :paused, archived = :archived WHERE slug = :slug RETURNING *;

-- name: board_list
SELECT * FROM boards ORDER BY slug;

-- name: board_counts
SELECT status, count(*) AS count FROM tasks WHERE board = :board GROUP BY status;

-- name: board_oldest_ready
SELECT min(status_ms) AS since_ms FROM tasks WHERE board = :board AND status = 'ready';

-- name: board_running
SELECT profile, host, pool, environment, count(*) AS count FROM runs WHERE board = :board AND outcome IS NULL
GROUP BY profile, host, pool, environment;

-- name: caps_get
SELECT scope, name, most FROM caps WHERE board = :board;

-- name: cap_set
INSERT INTO caps (board, scope, name, most) VALUES (:board, :scope, :name, :most)
ON CONFLICT (board, scope, name) DO UPDATE SET most = excluded.most;

-- name: next_seq
UPDATE boards SET last_seq = last_seq + :count WHERE slug = :board RETURNING last_seq;

-- name: event_add
INSERT INTO events (board, seq, task_id, run_id, kind, actor, at_ms, payload)
VALUES (:board, :seq, :task_id, :run_id, :kind, :actor, :at_ms, :payload);

-- name: events_after
SELECT * FROM events WHERE board = :board AND seq > :after ORDER BY seq LIMIT :most;

-- name: events_of_task
SELECT * FROM events WHERE task_id = :task ORDER BY seq DESC LIMIT :most;

-- name: answer_reserve
INSERT INTO answers (scope, name, question, answer, at_ms) VALUES (:scope, :name, :question, '', :now)
ON CONFLICT (scope, name) DO NOTHING RETURNING name;

-- name: answer_set
UPDATE answers SET answer = :answer WHERE scope = :scope AND name = :name;

-- name: answer_get
SELECT question, answer FROM answers WHERE scope = :scope AND name = :name;

-- name: task_add
INSERT INTO tasks (id, board, title, body, assignee, status, priority, created_by, created_by_run, created_ms, status_ms,
    open_parents, generation, attempts, max_attempts, wake_ms, options, waiting_for, reason, version, workspace_kind,
    workspace, max_runtime_s, reviewer, checks, pool, max_tokens, max_cost, environment)
VALUES (:id, :board, :title, :body, :assignee, :status, :priority, :created_by, :created_by_run, :now, :now,
    :open_parents, 0, 0, :max_attempts, :wake_ms, '[]', '', '', 1, :workspace_kind, :workspace, :max_runtime_s,
    :reviewer, :checks, :pool, :max_tokens, :max_cost, :environment)
RETURNING *;

-- name: task_get
SELECT * FROM tasks WHERE id = :id;

-- name: task_ids_like
SELECT id FROM tasks WHERE substr(id, 1, :size) = :begins OR substr(id, 1, :long) = :prefixed ORDER BY id LIMIT :most;

-- name: task_lock
SELECT * FROM tasks WHERE id = :id LOCK ROWS;

-- name: task_save
UPDATE tasks SET assignee = :assignee, status = :status, status_ms = :status_ms, ended_ms = :ended_ms, run_id = :run_id,
    attempts = :attempts, wake_ms = :wake_ms, question = :question, options = :options, waiting_for = :waiting_for,
    reason = :reason, result = :result, open_parents = :open_parents, title = :title, body = :body, priority = :priority,
    max_attempts = :max_attempts, workspace_kind = :workspace_kind, workspace = :workspace, max_runtime_s = :max_runtime_s,
    report_only = :report_only, reviewer = :reviewer, checks = :checks, pool = :pool, max_tokens = :max_tokens,
    max_cost = :max_cost, environment = :environment, acknowledged_ms = :acknowledged_ms, version = version + 1
WHERE id = :id AND version = :version
RETURNING *;

-- name: task_claim
UPDATE tasks SET status = 'running', status_ms = :now, run_id = :run, generation = generation + 1,
    attempts = attempts + 1, reason = '', version = version + 1
WHERE id = (SELECT id FROM tasks WHERE board = :board AND status = 'ready' AND id = :task
    AND NOT SPENT LOCK FREE ROWS)
RETURNING *;

-- name: task_free
SELECT assignee, pool, environment FROM tasks WHERE board = :board AND status = 'ready' AND id = :task LOCK FREE ROWS;

-- name: task_best_of
SELECT id, priority, created_ms FROM tasks WHERE board = :board AND status = 'ready' AND assignee = :assignee AND NOT SPENT
ORDER BY priority DESC, created_ms, id LIMIT 1 LOCK FREE ROWS;

-- name: ready_environments
SELECT DISTINCT environment AS name FROM tasks WHERE board = :board AND status = 'ready' AND environment <> '' LIMIT :most;

-- name: task_best_at
SELECT id, priority, created_ms FROM tasks WHERE board = :board AND status = 'ready' AND assignee = :assignee
    AND environment = :environment AND NOT SPENT
ORDER BY priority DESC, created_ms, id LIMIT 1 LOCK FREE ROWS;

-- name: ready_assignees
WITH RECURSIVE names (name) AS (
    SELECT min(assignee) FROM tasks WHERE board = :board AND status = 'ready'
    UNION ALL SELECT (SELECT min(assignee) FROM tasks WHERE board = :board AND status = 'ready' AND assignee > names.name)
    FROM names WHERE names.name IS NOT NULL
)
SELECT name FROM names WHERE name IS NOT NULL LIMIT :most;

-- name: task_claim_next
UPDATE tasks SET status = 'running', status_ms = :now, run_id = :run, generation = generation + 1,
    attempts = attempts + 1, reason = '', version = version + 1
WHERE id = (SELECT id FROM tasks WHERE board = :board AND status = 'ready' AND NOT SPENT
    ORDER BY priority DESC, created_ms, id LIMIT 1 LOCK FREE ROWS)
RETURNING *;

-- name: tasks_due
SELECT * FROM tasks WHERE board = :board AND wake_ms IS NOT NULL AND wake_ms <= :now
ORDER BY wake_ms LIMIT :most LOCK FREE ROWS;

-- name: waits_anew
UPDATE tasks SET wake_ms = :now + wake_ms - status_ms, status_ms = :now
WHERE board = :board AND wake_ms IS NOT NULL AND wake_ms > :after AND status_ms > :after RETURNING id;

-- name: links_alone
ALONE;

-- name: link_add
INSERT INTO links (parent, child, open) VALUES (:parent, :child, :open)
ON CONFLICT (parent, child) DO NOTHING RETURNING open;

-- name: link_remove
DELETE FROM links WHERE parent = :parent AND child = :child RETURNING open;

-- name: links_above
SELECT * FROM links WHERE child = :task ORDER BY parent LIMIT :most;

-- name: links_open_above
SELECT parent, tasks.status AS status FROM links JOIN tasks ON tasks.id = parent
WHERE child = :task AND open = 1 ORDER BY parent LIMIT :most;

-- name: results_above
SELECT tasks.id AS task_id, title, status, result FROM links JOIN tasks ON tasks.id = parent
WHERE child = :task ORDER BY parent LIMIT :most;

-- name: link_get
SELECT open FROM links WHERE parent = :parent AND child = :child;

-- name: links_below
SELECT * FROM links WHERE parent = :task ORDER BY child LIMIT :most;

-- name: link_cycle
WITH RECURSIVE below (id) AS (
    SELECT child FROM links WHERE parent = :child
    UNION SELECT links.child FROM links JOIN below ON links.parent = below.id
)
SELECT id FROM below WHERE id = :parent;

-- name: children_release
UPDATE tasks SET open_parents = open_parents - 1, version = version + 1,
    status_ms = CASE WHEN status = 'todo' AND open_parents = 1 THEN :now ELSE status_ms END,
    status = CASE WHEN status = 'todo' AND open_parents = 1 THEN 'ready' ELSE status END
WHERE id IN (SELECT child FROM links WHERE parent = :parent AND open = 1)
RETURNING id, status;

-- name: links_satisfy
UPDATE links SET open = 0 WHERE parent = :parent AND open = 1;

-- name: run_add
INSERT INTO runs (id, task_id, board, generation, worker, host, profile, lease_until_ms, heartbeat_ms, note, started_ms,
    metadata, pool, environment)
VALUES (:id, :task_id, :board, :generation, :worker, :host, :profile, :lease_until_ms, :now, '', :now, '{}', :pool,
    :environment)
RETURNING *;

-- name: run_get
SELECT * FROM runs WHERE id = :id;

-- name: run_beat
UPDATE runs SET lease_until_ms = :lease_until_ms, heartbeat_ms = :now, note = :note
WHERE id = :id AND outcome IS NULL RETURNING *;

-- name: run_end
UPDATE runs SET ended_ms = :now, outcome = :outcome, failure = :failure, summary = :summary, metadata = :metadata,
    error = :error, stuck = ''
WHERE id = :id AND outcome IS NULL RETURNING *;

-- name: run_set
UPDATE runs SET workspace = :workspace, session = :session, metadata = :metadata WHERE id = :id RETURNING *;

-- name: runs_held
SELECT * FROM runs WHERE host = :host AND outcome IS NULL ORDER BY started_ms, id;

-- name: runs_open
SELECT count(*) AS count FROM runs WHERE board = :board AND outcome IS NULL;

-- name: runs_expired
SELECT runs.id AS id, task_id, generation FROM runs
WHERE board = :board AND outcome IS NULL AND lease_until_ms <= :now ORDER BY lease_until_ms LIMIT :most;

-- name: leases_anew
UPDATE runs SET lease_until_ms = :now + lease_until_ms - heartbeat_ms, heartbeat_ms = :now
WHERE board = :board AND outcome IS NULL AND heartbeat_ms > :after RETURNING id;

-- name: runs_of_task
SELECT * FROM runs WHERE task_id = :task ORDER BY generation DESC LIMIT :most;

-- name: answers_count
SELECT count(*) AS count FROM answers WHERE scope = :scope;

-- name: comment_add
INSERT INTO comments (task_id, number, author, body, at_ms, run_id, path, line)
VALUES (:task, (SELECT coalesce(max(number), 0) + 1 FROM comments WHERE task_id = :task), :author, :body, :now, :run,
    :path, :line)
RETURNING *;

-- name: comments_of_task
SELECT * FROM comments WHERE task_id = :task ORDER BY number DESC LIMIT :most;

-- name: messages_of_task
SELECT * FROM messages WHERE task_id = :task ORDER BY number DESC LIMIT :most;

-- name: file_put
INSERT INTO files (id, task_id, run_id, name, size, sha256, author, at_ms, data)
VALUES (:id, :task, :run, :name, :size, :sha256, :author, :now, :data)
ON CONFLICT (task_id, coalesce(run_id, ''), name) DO UPDATE SET size = excluded.size, sha256 = excluded.sha256,
    author = excluded.author, at_ms = excluded.at_ms, data = excluded.data
RETURNING id, task_id, run_id, name, size, sha256, author, at_ms;

-- name: files_of
SELECT id, task_id, run_id, name, size, sha256, author, at_ms FROM files
WHERE task_id = :task AND coalesce(run_id, '') = :run ORDER BY name;

-- name: file_get
SELECT sha256, data FROM files WHERE task_id = :task AND coalesce(run_id, '') = :run AND name = :name;

-- name: offer_get
SELECT profiles, at_ms FROM offers WHERE board = :board AND host = :host;

-- name: offer_set
INSERT INTO offers (board, host, profiles, at_ms) VALUES (:board, :host, :profiles, :now)
ON CONFLICT (board, host) DO UPDATE SET profiles = excluded.profiles, at_ms = excluded.at_ms;

-- name: offers_since
SELECT host, profiles FROM offers WHERE board = :board AND at_ms BETWEEN :since AND :until ORDER BY host LIMIT :most;

-- name: wrong_files
SELECT files.task_id AS id FROM files JOIN runs ON runs.id = files.run_id WHERE runs.task_id <> files.task_id;

-- name: wrong_counters
SELECT id FROM tasks WHERE open_parents <> (SELECT count(*) FROM links WHERE child = tasks.id AND open = 1);

-- name: wrong_links
SELECT child AS id FROM links JOIN tasks ON tasks.id = parent
WHERE (open = 1 AND tasks.status = 'done') OR (open = 0 AND tasks.status NOT IN ('done', 'archived'));

-- name: wrong_runs
SELECT tasks.id AS id FROM tasks LEFT JOIN runs ON runs.id = tasks.run_id AND runs.outcome IS NULL
    AND runs.task_id = tasks.id AND runs.generation = tasks.generation
WHERE tasks.run_id IS NOT NULL AND runs.id IS NULL
UNION SELECT runs.task_id FROM runs JOIN tasks ON tasks.id = runs.task_id
WHERE runs.outcome IS NULL AND (tasks.run_id IS NULL OR tasks.run_id <> runs.id);

-- name: wrong_events
SELECT slug AS id FROM boards
WHERE last_seq <> (SELECT count(*) FROM events WHERE board = slug)
    OR last_seq <> (SELECT coalesce(max(seq), 0) FROM events WHERE board = slug);

-- name: message_add
INSERT INTO messages (task_id, number, run_id, author, body, at_ms)
VALUES (:task, (SELECT coalesce(max(number), 0) + 1 FROM messages WHERE task_id = :task), :run, :author, :body, :now)
RETURNING *;

-- name: messages_pending
SELECT number FROM messages WHERE run_id = :run AND seen_ms IS NULL
UNION ALL SELECT 0 FROM answers WHERE scope = :scope AND name = :name LIMIT 1;

-- name: messages_unseen
SELECT * FROM messages WHERE run_id = :run AND seen_ms IS NULL ORDER BY number;

-- name: messages_between
SELECT * FROM messages WHERE task_id = :task AND number BETWEEN :first AND :last ORDER BY number;

-- name: messages_see
UPDATE messages SET seen_ms = :now WHERE run_id = :run AND seen_ms IS NULL AND delivered_ms IS NOT NULL RETURNING number;

-- name: messages_deliver
UPDATE messages SET delivered_ms = :now WHERE run_id = :run AND seen_ms IS NULL AND delivered_ms IS NULL RETURNING number;

-- name: messages_pass_on
UPDATE messages SET run_id = :run, delivered_ms = NULL WHERE task_id = :task AND seen_ms IS NULL;

-- name: run_stuck
UPDATE runs SET stuck = :stuck WHERE id = :id RETURNING *;

-- name: runs_stuck
SELECT task_id, stuck FROM runs WHERE board = :board AND outcome IS NULL AND stuck <> '';
-- name: ready_pools
WITH RECURSIVE names (name) AS (
    SELECT min(pool) FROM tasks WHERE board = :board AND status = 'ready' AND assignee = :assignee
    UNION ALL SELECT (SELECT min(pool) FROM tasks
        WHERE board = :board AND status = 'ready' AND assignee = :assignee AND pool > names.name)
    FROM names WHERE names.name IS NOT NULL
)
SELECT name FROM names WHERE name IS NOT NULL LIMIT :most;

-- name: task_best_in
SELECT id, priority, created_ms FROM tasks
WHERE board = :board AND status = 'ready' AND assignee = :assignee AND pool = :pool
ORDER BY priority DESC, created_ms, id LIMIT 1 LOCK FREE ROWS;
-- name: task_best_in_at
SELECT id, priority, created_ms FROM tasks
WHERE board = :board AND status = 'ready' AND assignee = :assignee AND pool = :pool AND environment = :environment
ORDER BY priority DESC, created_ms, id LIMIT 1 LOCK FREE ROWS;
-- name: run_use
UPDATE runs SET tokens = :tokens, cost = :cost, turns = :turns WHERE id = :id RETURNING *;

-- name: task_used
SELECT coalesce(sum(tokens), 0) AS tokens, coalesce(sum(cost), 0) AS cost FROM runs WHERE task_id = :task;

-- name: runs_recent
SELECT profile, outcome, failure, count(*) AS count, CAST(sum(tokens) AS BIGINT) AS tokens,
    CAST(sum(cost) AS BIGINT) AS cost, CAST(sum(turns) AS BIGINT) AS turns,
    sum(CASE WHEN tokens + cost + turns > 0 THEN 1 ELSE 0 END) AS told
FROM events JOIN runs ON runs.id = events.run_id
WHERE events.board = :board AND events.seq > :after AND events.kind = 'claim'
GROUP BY profile, outcome, failure;

-- name: events_of_claims
SELECT * FROM events WHERE board = :board AND seq > :after AND kind IN ('created', 'specify', 'promote', 'wake', 'unblock',
    'request_changes', 'retry', 'claim')
ORDER BY seq;
-- name: review_last
SELECT * FROM events WHERE task_id = :task AND kind = 'reviewed' ORDER BY seq DESC LIMIT 1;

-- name: comments_between
SELECT * FROM comments WHERE task_id = :task AND number BETWEEN :first AND :last ORDER BY number;

-- name: inbox_of_status
SELECT * FROM tasks WHERE board = :board AND status = :status
    AND (:name = '' OR CASE status WHEN 'review' THEN reviewer ELSE waiting_for END IN ('', :name))
    AND (status <> 'review' OR waiting_for = '' OR status_ms <= :patient)
ORDER BY created_ms DESC, id DESC LIMIT :most;

-- name: place_taken
SELECT id, host FROM runs WHERE board IN (SELECT slug FROM boards) AND outcome IS NULL
    AND workspace = :workspace AND host <> :host
ORDER BY started_ms, id LIMIT 1;

-- name: hosts_asked_by
SELECT question, answer FROM answers WHERE scope = :scope ORDER BY at_ms, name;

-- name: hosts_asked_on
SELECT question, answer FROM runs JOIN answers ON answers.scope = :scope || runs.id
WHERE runs.board = :board AND runs.outcome IS NULL ORDER BY answers.at_ms, answers.name;
