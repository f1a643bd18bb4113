//! Rescue and lost messages.
