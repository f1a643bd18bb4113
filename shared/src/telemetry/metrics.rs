//! placeholder
use std::sync::LazyLock;
static REGISTRY: LazyLock<prometheus::Registry> = LazyLock::new(prometheus::Registry::new);
pub(super) fn registry() -> &'static prometheus::Registry {
    &REGISTRY
}
