-- What an attempt leaves behind for the next one: steps, model calls, artifacts.

CREATE TABLE steps (
    task_id    uuid NOT NULL,
    name       text NOT NULL,
    input_hash bytea NOT NULL,
    result     jsonb NOT NULL,
    run        integer NOT NULL,
    token      uuid NOT NULL,
    took_ms    bigint NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (task_id, name)
);
COMMENT ON TABLE steps IS 'checkpoints: a step that is here is not run again by a later attempt';
COMMENT ON COLUMN steps.task_id IS 'the task';
COMMENT ON COLUMN steps.name IS 'name within the task';
COMMENT ON COLUMN steps.input_hash IS 'SHA-256 of the step''s input: a changed input reruns the step';
COMMENT ON COLUMN steps.result IS 'what it returned';
COMMENT ON COLUMN steps.run IS 'attempt that ran it';
COMMENT ON COLUMN steps.token IS 'claim it was written under';
COMMENT ON COLUMN steps.took_ms IS 'milliseconds it took';
COMMENT ON COLUMN steps.created_at IS 'when it was kept';

CREATE TABLE llm_calls (
    id                uuid PRIMARY KEY,
    task_id           uuid NOT NULL,
    step              text NOT NULL,
    call_no           integer NOT NULL,
    run               integer NOT NULL,
    token             uuid NOT NULL,
    state             text NOT NULL CHECK (state IN ('sent', 'done', 'failed', 'unknown')),
    request_hash      bytea NOT NULL,
    endpoint          text NOT NULL,
    model             text NOT NULL,
    response_model    text,
    response          jsonb,
    input_tokens      bigint,
    output_tokens     bigint,
    cached_tokens     bigint,
    reasoning_tokens  bigint,
    usage_estimated   boolean NOT NULL DEFAULT false,
    cost_micro        bigint,
    error_class       text,
    error_message     text,
    traceparent       text,
    started_at        timestamptz NOT NULL,
    ended_at          timestamptz,
    UNIQUE (task_id, step, call_no),
    CONSTRAINT llm_calls_ended CHECK ((state = 'sent') = (ended_at IS NULL)),
    CONSTRAINT llm_calls_answer CHECK ((state = 'done') = (response IS NOT NULL))
);
COMMENT ON TABLE llm_calls IS 'every model call: written before it is sent, its answer before the step goes on; a stored answer is never paid again';
COMMENT ON COLUMN llm_calls.id IS 'also the Idempotency-Key header';
COMMENT ON COLUMN llm_calls.task_id IS 'the task';
COMMENT ON COLUMN llm_calls.step IS 'step of the handler that asked';
COMMENT ON COLUMN llm_calls.call_no IS 'number of the call within the step, over all attempts';
COMMENT ON COLUMN llm_calls.run IS 'attempt that asked';
COMMENT ON COLUMN llm_calls.token IS 'claim it was asked under';
COMMENT ON COLUMN llm_calls.state IS 'sent; then done, failed (nothing to pay), or unknown (may have been billed)';
COMMENT ON COLUMN llm_calls.request_hash IS 'SHA-256 of endpoint and request: the same question reuses the answer';
COMMENT ON COLUMN llm_calls.endpoint IS 'host and port asked';
COMMENT ON COLUMN llm_calls.model IS 'model asked for';
COMMENT ON COLUMN llm_calls.response_model IS 'model that answered';
COMMENT ON COLUMN llm_calls.response IS 'the answer: {text, finish_reason, tool_calls, id}';
COMMENT ON COLUMN llm_calls.input_tokens IS 'tokens in, as billed';
COMMENT ON COLUMN llm_calls.output_tokens IS 'tokens out, as billed';
COMMENT ON COLUMN llm_calls.cached_tokens IS 'of the input, read from a cache';
COMMENT ON COLUMN llm_calls.reasoning_tokens IS 'of the output, spent on reasoning';
COMMENT ON COLUMN llm_calls.usage_estimated IS 'the endpoint named no usage; the tokens are our estimate';
COMMENT ON COLUMN llm_calls.cost_micro IS 'millionths of a US dollar by the configured price';
COMMENT ON COLUMN llm_calls.error_class IS 'class of a failure';
COMMENT ON COLUMN llm_calls.error_message IS 'its message';
COMMENT ON COLUMN llm_calls.traceparent IS 'its chat span';
COMMENT ON COLUMN llm_calls.started_at IS 'before it was sent';
COMMENT ON COLUMN llm_calls.ended_at IS 'when the answer was stored';

CREATE TABLE artifacts (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    report       text NOT NULL,
    date         text NOT NULL,
    task_id      uuid NOT NULL,
    content_type text NOT NULL,
    sha256       bytea NOT NULL,
    content      bytea NOT NULL,
    created_at   timestamptz NOT NULL,
    UNIQUE (report, date)
);
COMMENT ON TABLE artifacts IS 'finished reports, one per report and date; written with the completion of their task';
COMMENT ON COLUMN artifacts.id IS 'number people use';
COMMENT ON COLUMN artifacts.report IS 'name of the report';
COMMENT ON COLUMN artifacts.date IS 'what the report is about: a date, or an instant for more frequent ones';
COMMENT ON COLUMN artifacts.task_id IS 'the task that made it';
COMMENT ON COLUMN artifacts.content_type IS 'media type';
COMMENT ON COLUMN artifacts.sha256 IS 'of the content';
COMMENT ON COLUMN artifacts.content IS 'the content, here so that every host can read it';
COMMENT ON COLUMN artifacts.created_at IS 'when';
