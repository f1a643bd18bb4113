//! Templates of execution keys and payloads.
