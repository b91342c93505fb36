-- Of a token only its digest is here; of an authorization too.
CREATE TABLE relay_tokens (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL UNIQUE,
    roles TEXT NOT NULL,
    environments TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    revoked_ms INTEGER,
    UNIQUE (tenant, name)
) STRICT;

-- A relay process. What it holds counts while its lease runs; its id is new with each start.
CREATE TABLE relay_nodes (
    id TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL
) STRICT;

-- The newest registration of each environment, and the node that has the executor's socket: `epoch` counts the sockets.
CREATE TABLE relay_environments (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    registration TEXT NOT NULL UNIQUE,
    public_key TEXT NOT NULL,
    key_digest TEXT NOT NULL,
    token_id TEXT NOT NULL REFERENCES relay_tokens (id),
    registered_ms INTEGER NOT NULL,
    node TEXT,
    epoch INTEGER NOT NULL DEFAULT 0,
    connected_ms INTEGER,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX relay_environments_by_node ON relay_environments (node);

-- What a harness was given for one connection: to dial with, once, and to be validated by, once.
CREATE TABLE relay_authorizations (
    id TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    tenant TEXT NOT NULL,
    environment TEXT NOT NULL,
    registration TEXT NOT NULL,
    key_digest TEXT NOT NULL,
    token_id TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    dialed_ms INTEGER,
    used_ms INTEGER
) STRICT;
CREATE INDEX relay_authorizations_by_registration ON relay_authorizations (registration);
CREATE INDEX relay_authorizations_by_expiry ON relay_authorizations (expires_ms);

-- What a node is to do, until it has read it: end what a token opened, or a socket that another node has replaced.
CREATE TABLE relay_orders (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    node TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('token', 'socket')),
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX relay_orders_by_node ON relay_orders (node);

CREATE TABLE relay_keys (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
