-- Every question a relay asks, by name, for both dialects. A colon marks a value; `LOCK ROWS` is PostgreSQL's row lock.

-- name: token_add
INSERT INTO relay_tokens (id, tenant, name, digest, roles, environments, created_ms, expires_ms)
VALUES (:id, :tenant, :name, :digest, :roles, :environments, :now, :expires)
ON CONFLICT DO NOTHING RETURNING *;

-- name: token_by_digest
SELECT * FROM relay_tokens WHERE digest = :digest;

-- name: token_by_id
SELECT * FROM relay_tokens WHERE id = :id;

-- name: token_named
SELECT * FROM relay_tokens WHERE id = :named OR name = :named ORDER BY id;

-- name: token_list
SELECT * FROM relay_tokens ORDER BY tenant, name;

-- name: token_revoke
UPDATE relay_tokens SET revoked_ms = :now WHERE id = :id AND revoked_ms IS NULL RETURNING *;

-- name: tokens_expired
SELECT id, tenant FROM relay_tokens WHERE expires_ms <= :now AND revoked_ms IS NULL;

-- name: node_beat
UPDATE relay_nodes SET url = :url, lease_ms = :lease WHERE id = :node RETURNING id;

-- name: node_join
INSERT INTO relay_nodes (id, url, started_ms, lease_ms) VALUES (:node, :url, :now, :lease);

-- name: node_leave
DELETE FROM relay_nodes WHERE id = :node;

-- name: node_let_go
UPDATE relay_environments SET node = NULL WHERE node = :node;

-- name: nodes_gone
SELECT id FROM relay_nodes WHERE lease_ms <= :before;

-- name: nodes_known
SELECT id FROM relay_nodes ORDER BY id;

-- name: orders_take
DELETE FROM relay_orders WHERE node = :node RETURNING *;

-- name: order_add
INSERT INTO relay_orders (node, kind, tenant, subject, epoch) VALUES (:node, :kind, :tenant, :subject, :epoch);

-- name: environment_lock
SELECT * FROM relay_environments WHERE tenant = :tenant AND id = :id LOCK ROWS;

-- name: environment_after
SELECT id FROM relay_environments WHERE tenant = :tenant ORDER BY tenant, id LIMIT 1 OFFSET :most;

-- name: environment_register
INSERT INTO relay_environments (tenant, id, registration, public_key, key_digest, token_id, registered_ms)
VALUES (:tenant, :id, :registration, :public_key, :key_digest, :token_id, :now)
ON CONFLICT (tenant, id) DO UPDATE SET registration = excluded.registration, public_key = excluded.public_key,
    key_digest = excluded.key_digest, token_id = excluded.token_id, registered_ms = excluded.registered_ms,
    node = NULL, connected_ms = NULL
RETURNING registration;

-- name: environment_same_key
UPDATE relay_environments SET token_id = :token_id, registered_ms = :now
WHERE tenant = :tenant AND id = :id RETURNING registration;

-- name: environment_attach
UPDATE relay_environments SET node = :node, epoch = epoch + 1, connected_ms = :now
WHERE tenant = :tenant AND id = :id RETURNING epoch;

-- name: environment_detach
UPDATE relay_environments SET node = NULL, connected_ms = NULL
WHERE tenant = :tenant AND id = :id AND node = :node AND epoch = :epoch;

-- name: environment_online
SELECT e.*, n.url AS node_url FROM relay_environments e JOIN relay_nodes n ON n.id = e.node
WHERE e.tenant = :tenant AND e.id = :id AND n.lease_ms > :now;

-- name: environment_list
SELECT e.tenant, e.id, e.registration, e.token_id, e.registered_ms, e.connected_ms, e.epoch, n.url AS node_url
FROM relay_environments e LEFT JOIN relay_nodes n ON n.id = e.node AND n.lease_ms > :now ORDER BY e.tenant, e.id;

-- name: environments_forgotten
DELETE FROM relay_environments WHERE node IS NULL AND registered_ms <= :before;

-- name: authorization_add
INSERT INTO relay_authorizations (id, digest, tenant, environment, registration, key_digest, token_id, expires_ms)
VALUES (:id, :digest, :tenant, :environment, :registration, :key_digest, :token_id, :expires);

-- name: authorization_dial
UPDATE relay_authorizations SET dialed_ms = :now
WHERE id = :id AND tenant = :tenant AND environment = :environment AND registration = :registration
    AND dialed_ms IS NULL AND expires_ms > :now RETURNING token_id;

-- name: authorization_use
UPDATE relay_authorizations SET used_ms = :now
WHERE registration = :registration AND digest = :digest AND key_digest = :key_digest AND tenant = :tenant
    AND environment = :environment AND used_ms IS NULL AND expires_ms > :now RETURNING token_id;

-- name: authorizations_expired
DELETE FROM relay_authorizations WHERE expires_ms <= :now;

-- name: key_add
INSERT INTO relay_keys (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING;

-- name: key_get
SELECT value FROM relay_keys WHERE name = :name;
