//! Shell: description of a process in its traces: the resource, and the database of its transactions.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;

/// Process whose spans are exported.
#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    /// Name of the service.
    pub service: &'static str,
    /// Name of the instance among its replicas.
    pub instance: &'a str,
    /// URL of the database.
    pub database: &'a str,
}

/// Resource of all spans, and attributes of the database.
pub(super) struct Described {
    pub(super) resource: Resource,
    pub(super) database: Vec<KeyValue>,
}

impl Described {
    /// Describes this process. `OTEL_RESOURCE_ATTRIBUTES` adds attributes, and replaces all but the service's name.
    pub(super) fn of(process: Process<'_>) -> Self {
        let Process { service, instance, database } = process;
        let host = host_name();
        // The instances of two systems on different hosts have the same names.
        let instance = match &host {
            Some(host) => format!("{instance}@{host}"),
            None => instance.to_owned(),
        };
        let resource = Resource::builder_empty()
            .with_attributes([
                KeyValue::new("service.namespace", "saga"),
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", instance),
            ])
            .with_attributes(host.map(|host| KeyValue::new("host.name", host)))
            .with_detector(Box::new(EnvResourceDetector::new()))
            .with_attribute(KeyValue::new("service.name", service));
        Self { resource: resource.build(), database: database_of(database) }
    }
}

/// Name of this host, as its kernel has it.
fn host_name() -> Option<String> {
    let of_kernel = ["/proc/sys/kernel/hostname", "/etc/hostname"].into_iter();
    let mut names = of_kernel
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .chain(std::env::var("HOSTNAME").ok())
        .map(|name| name.trim().to_owned());
    names.find(|name| !name.is_empty())
}

/// Attributes of the database at `url`.
fn database_of(url: &str) -> Vec<KeyValue> {
    if !url.starts_with("postgres") {
        return vec![KeyValue::new("db.system.name", "sqlite")];
    }
    let place = url.split_once("://").map_or(url, |(_, rest)| rest);
    let name = place.split_once('/').map(|(_, path)| path.split('?').next().unwrap_or_default());
    let name = name.filter(|name| !name.is_empty());
    let namespace = name.map(|name| KeyValue::new("db.namespace", name.to_owned()));
    std::iter::once(KeyValue::new("db.system.name", "postgresql")).chain(namespace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_is_named_without_user_and_address() {
        let of = |url: &str| -> Vec<String> {
            database_of(url).iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect()
        };
        assert_eq!(of("sqlite:.saga/order.db"), ["db.system.name=sqlite"]);
        let postgres = "db.system.name=postgresql";
        for url in ["postgres://saga:secret@one,two:5432/shop?sslmode=require", "postgresql://one/shop"] {
            assert_eq!(of(url), [postgres, "db.namespace=shop"], "{url}");
        }
        assert_eq!(of("postgres://saga@one"), [postgres]);
    }
}
