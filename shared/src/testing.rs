//! A house for tests.
