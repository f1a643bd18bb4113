# One image for producer, worker and loadtest; the command chooses.
#
#   docker build --target runtime .             compiles inside (default)
#   docker build --target runtime-prebuilt .    takes target/release/{producer,worker,loadtest} as they are
#   docker build --target runtime-prebuilt --build-context bin=DIR .   takes them from DIR
#
# There is no `# syntax=` line: it would ask a registry before every build.

ARG RUST_VERSION=1.95
# Where Docker Hub is out of reach: any Debian 13.
ARG BASE_IMAGE=debian:trixie-slim

# --- builder: the three programs, with the crates and the object files kept between builds
FROM rust:${RUST_VERSION}-slim-trixie AS builder
WORKDIR /src
COPY . .
ARG GIT_SHA=unknown
ENV GIT_SHA=${GIT_SHA} CARGO_TERM_COLOR=never CARGO_PROFILE_RELEASE_STRIP=symbols
# The caches are gone after the RUN, so the programs are copied out within it.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/usr/local/cargo/git \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --release --locked --bins \
    && mkdir /out \
    && cp target/release/producer target/release/worker target/release/loadtest /out/

# --- bin: programs built before; `--build-context bin=DIR` puts DIR in its place
FROM scratch AS bin
COPY target/release/producer target/release/worker target/release/loadtest /

# --- base: what the programs need around them
FROM ${BASE_IMAGE} AS base
# TLS roots for the model's endpoint, webhooks and http_call. Time zones are inside the programs.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 65532 -g 65532 /var/lib/belfry \
    && install -d /etc/belfry
COPY examples/ /usr/share/belfry/examples/
ENV BELFRY_HTTP_ADDR=0.0.0.0:8080
USER 65532:65532
WORKDIR /
STOPSIGNAL SIGTERM
EXPOSE 8080
CMD ["producer", "--help"]

# --- runtime-prebuilt
FROM base AS runtime-prebuilt
COPY --from=bin producer worker loadtest /usr/local/bin/
ARG GIT_SHA=unknown
LABEL org.opencontainers.image.title="Belfry" \
      org.opencontainers.image.description="Message-queue worker fleet on PostgreSQL and RabbitMQ" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.revision="${GIT_SHA}"

# --- runtime, the last and so the default
FROM base AS runtime
COPY --from=builder /out/ /usr/local/bin/
ARG GIT_SHA=unknown
LABEL org.opencontainers.image.title="Belfry" \
      org.opencontainers.image.description="Message-queue worker fleet on PostgreSQL and RabbitMQ" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.revision="${GIT_SHA}"
