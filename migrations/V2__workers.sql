-- Liveness: one row per start of a process, and the one leader.

CREATE TABLE workers (
    id          uuid PRIMARY KEY,
    role        text NOT NULL CHECK (role IN ('worker', 'producer')),
    label       text NOT NULL,
    version     text NOT NULL,
    pools       jsonb NOT NULL DEFAULT '{}',
    started_at  timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    lease_until timestamptz NOT NULL,
    fenced_at   timestamptz,
    stopped_at  timestamptz,
    draining    boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200);
COMMENT ON TABLE workers IS 'incarnations: random identity per process start with a heartbeat; a fenced one is never renewed';
COMMENT ON COLUMN workers.id IS 'random, made by the process';
COMMENT ON COLUMN workers.role IS 'worker or producer';
COMMENT ON COLUMN workers.label IS 'name@host#pid, for people; never compared';
COMMENT ON COLUMN workers.version IS 'version of the binary';
COMMENT ON COLUMN workers.pools IS 'pool name to slots';
COMMENT ON COLUMN workers.started_at IS 'registration';
COMMENT ON COLUMN workers.seen_at IS 'last renewal';
COMMENT ON COLUMN workers.lease_until IS 'the identity may claim and keep tasks until then';
COMMENT ON COLUMN workers.fenced_at IS 'when a sweep found the lease over, or the process stopped; its tasks are given back';
COMMENT ON COLUMN workers.stopped_at IS 'set when it stopped in good order';
COMMENT ON COLUMN workers.draining IS 'asked to take nothing new';

CREATE TABLE leadership (
    name        text PRIMARY KEY,
    token       uuid NOT NULL,
    incarnation uuid NOT NULL,
    label       text NOT NULL,
    epoch       bigint NOT NULL DEFAULT 1,
    since       timestamptz NOT NULL,
    lease_until timestamptz NOT NULL
);
COMMENT ON TABLE leadership IS 'the one producer that ticks; the tick statement checks the token, so a late leader writes nothing';
COMMENT ON COLUMN leadership.name IS 'what is led: producer';
COMMENT ON COLUMN leadership.token IS 'random identity of this term';
COMMENT ON COLUMN leadership.incarnation IS 'the process';
COMMENT ON COLUMN leadership.label IS 'its label, for people';
COMMENT ON COLUMN leadership.epoch IS 'number of the term';
COMMENT ON COLUMN leadership.since IS 'start of the term';
COMMENT ON COLUMN leadership.lease_until IS 'the term ends here unless it is renewed';
