//! `/livez`, `/readyz` and `/metrics` of a daemon.
