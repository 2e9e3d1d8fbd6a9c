//! The Services: one that reaches any ready node, and a headless one that lists all members, ready or not.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use types::names;

use super::{Error, labels, meta, sealed};
use crate::resolve::Resolved;

pub(super) fn services(resolved: &Resolved) -> Result<Vec<Service>, Error> {
    let cluster = &resolved.key.name;
    let any = ServiceSpec {
        selector: Some(labels(cluster, None)),
        ports: Some(vec![port("redis", names::PORT_REDIS)]),
        type_: Some("ClusterIP".to_owned()),
        ..ServiceSpec::default()
    };
    let headless = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        // Members must find each other before they are ready, or they never become ready.
        publish_not_ready_addresses: Some(true),
        selector: Some(labels(cluster, None)),
        ports: Some(vec![
            port("redis", names::PORT_REDIS),
            port("bus", names::PORT_BUS),
            port("agent", names::PORT_AGENT),
        ]),
        ..ServiceSpec::default()
    };
    [(names::service(cluster), any), (names::headless_service(cluster), headless)]
        .into_iter()
        .map(|(name, spec)| {
            let service = Service { metadata: meta(resolved, name, None), spec: Some(spec), ..Service::default() };
            sealed(service, "a Service")
        })
        .collect()
}

fn port(name: &str, port: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(i32::from(port))),
        ..ServicePort::default()
    }
}
