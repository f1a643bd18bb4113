//! How a process calls itself: labels for people, which several may share; nothing is decided by them
//! alone.

/// `role@host#pid`: in `workers list`, connection names, spans and logs.
pub fn label(role: &str) -> String {
    format!("{role}@{}#{}", host(), std::process::id())
}

/// `pool@host-pid`: the consumer's tag in the RabbitMQ UI.
pub fn tag(pool: &str) -> String {
    format!("{pool}@{}-{}", host(), std::process::id())
}

/// The host's name, as the kernel says.
pub fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "host".to_owned(),
        name => name.to_owned(),
    }
}
