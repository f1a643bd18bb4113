//! Publishes what is committed and not yet published.
