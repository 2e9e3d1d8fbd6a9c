//! temp
#![allow(clippy::all, missing_docs)]
#[global_allocator]
static A: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
use bytes::Bytes;
use certs::*;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use webhook::{Callers, Facts, Gathered};
fn leaf(name: &str, usage: Usage) -> Leaf {
    Leaf {
        common_name: name.into(),
        organizations: vec![],
        dns_names: vec!["webhook".into()],
        ips: vec![],
        usage,
        lifetime: Duration::from_secs(3600),
    }
}
fn body() -> Bytes {
    let mf: serde_json::Value =
        json!({"f:spec": (0..25).map(|i| (format!("f:field{i}"), json!({}))).collect::<serde_json::Map<_,_>>()});
    let shards: Vec<_> = (0..3).map(|i| json!({"index": i, "slots": "0-5460", "keys": 1000, "usedMemory": 100000, "primary": format!("orders-{i}-0"), "members": [{"pod": format!("orders-{i}-0"), "nodeId": "a".repeat(40), "address": "10.0.0.1:6379", "role": "Primary", "state": "Online"}]})).collect();
    let cond = |t: &str| json!({"type": t, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "X", "message": "every node agrees on 16384 slots", "observedGeneration": 3});
    let mut object = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": "orders", "namespace": "shop", "uid": "u", "resourceVersion": "55", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}, "managedFields": [{"manager": "kubectl", "operation": "Update", "apiVersion": "redis.kun.io/v1", "fieldsType": "FieldsV1", "fieldsV1": mf, "time": "2026-01-01T00:00:00Z"}]},
      "spec": {"mode": "Cluster", "version": "7.0", "shards": 3, "replicasPerShard": 1, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}, "memory": {"maxPercent": 75, "policy": "noeviction"}, "persistence": {"appendOnly": "EverySec"}, "storage": {"size": "10Gi", "retain": "Retain"}, "config": {"maxclients": "5000", "hz": "20"}, "failover": {"nodeTimeout": "5s", "minReplicasToWrite": 0}, "migration": {"batchKeys": 100, "maxKeyBytes": "512Mi", "paused": false}, "deletion": {"policy": "Delete", "protected": false}, "paused": false, "update": {"strategy": "Automatic"}},
      "status": {"phase": "Ready", "conditions": [cond("Ready"), cond("Available"), cond("Progressing")], "replicas": 3, "selector": "a=b", "shards": shards, "endpoints": ["a:6379"], "version": "7.0.15", "keys": 3000, "usedMemory": 300000, "maxMemory": 805306368}});
    let old = object.clone();
    object["spec"]["shards"] = json!(5);
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "705ab4f5", "operation": "UPDATE", "kind": {"group": "redis.kun.io", "version": "v1", "kind": "RedisCluster"}, "resource": {"group": "redis.kun.io", "version": "v1", "resource": "redisclusters"}, "name": "orders", "namespace": "shop", "userInfo": {"username": "a", "groups": ["b"]}, "object": object, "oldObject": old}}).to_string().into()
}
async fn echo(listener: TcpListener, tls: Arc<rustls::ServerConfig>, depth: u8) {
    let acceptor = tokio_rustls::TlsAcceptor::from(tls);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            stream.set_nodelay(true).unwrap();
            let stream = acceptor.accept(stream).await.unwrap();
            let service = hyper::service::service_fn(move |r: Request<hyper::body::Incoming>| async move {
                let b = r.into_body().collect().await.unwrap().to_bytes();
                std::hint::black_box(&b);
                if depth == 1 {
                    std::hint::black_box(webhook::review::read(&b, webhook::Stage::Validate).unwrap());
                }
                if depth == 2 {
                    let q = webhook::review::read(&b, webhook::Stage::Validate).unwrap();
                    std::hint::black_box(webhook::decide(&q, &Facts::default()));
                }
                if depth == 3 {
                    let q = webhook::review::read(&b, webhook::Stage::Validate).unwrap();
                    let v = webhook::decide(&q, &Facts::default());
                    std::hint::black_box(webhook::review::write(&q, &v).unwrap());
                }
                if depth == 4 {
                    std::hint::black_box(serde_json::from_slice::<serde_json::Value>(&b).unwrap());
                }
                let mut resp = Response::new(Full::new(Bytes::from_static(b"{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"response\":{\"uid\":\"705ab4f5\",\"allowed\":true}}")));
                resp.headers_mut().insert("content-type", "application/json".parse().unwrap());
                Ok::<_, Infallible>(resp)
            });
            let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
fn tid_cpu(tid: &str) -> f64 {
    std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat"))
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse::<f64>()
        .unwrap()
        / 1e3
}
fn main() {
    let authority = Authority::create("t").unwrap();
    let tls = |a: &Authority| {
        let id = a.issue(&leaf("s", Usage::SERVER)).unwrap();
        certs::server_config(&id, a.certificate_pem(), ClientAuth::Requested, &[ALPN_H1]).unwrap()
    };
    let mut servers = vec![];
    for kind in ["echo", "read", "decide", "write", "value", "webhook"] {
        let tls = tls(&authority);
        let (tx, rx) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .name(kind.into())
            .spawn(move || {
                let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                rt.block_on(async move {
                    let l = TcpListener::bind("127.81.0.9:0").await.unwrap();
                    let tid = std::fs::read_link("/proc/thread-self")
                        .unwrap()
                        .file_name()
                        .unwrap()
                        .to_string_lossy()
                        .into_owned();
                    tx.send((l.local_addr().unwrap(), tid)).unwrap();
                    if let Some(depth) = ["echo", "read", "decide", "write", "value"].iter().position(|k| *k == kind) {
                        echo(l, tls, depth as u8).await
                    } else {
                        webhook::serve(
                            l,
                            tls,
                            Callers::Named(vec!["kun:apiserver".into()]),
                            Gathered::fixed(Facts::default()),
                            Default::default(),
                        )
                        .await
                        .unwrap()
                    }
                });
            })
            .unwrap();
        let (addr, tid) = rx.recv().unwrap();
        servers.push((kind, addr, tid));
    }
    let id = authority.issue(&leaf("kun:apiserver", Usage::CLIENT)).unwrap();
    let ctls = certs::client_config(authority.certificate_pem(), Some(&id), &[ALPN_H1]).unwrap();
    let body = body();
    println!("body {}", body.len());
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..4 {
        let mut cost = vec![];
        for (kind, addr, tid) in &servers {
            let (ctls, body, addr) = (ctls.clone(), body.clone(), *addr);
            let n = 16;
            let per = 1000;
            let (before, took) = rt.block_on(async {
                let mut senders = vec![];
                for _ in 0..n {
                    let s = TcpStream::connect(addr).await.unwrap();
                    s.set_nodelay(true).unwrap();
                    let s = tokio_rustls::TlsConnector::from(ctls.clone())
                        .connect("webhook".try_into().unwrap(), s)
                        .await
                        .unwrap();
                    let (tx, c) = hyper::client::conn::http1::handshake(TokioIo::new(s)).await.unwrap();
                    tokio::spawn(c);
                    senders.push(tx);
                }
                let before = tid_cpu(tid);
                let start = std::time::Instant::now();
                let mut hs = vec![];
                for mut tx in senders {
                    let body = body.clone();
                    hs.push(tokio::spawn(async move {
                        for _ in 0..per {
                            let r = tx
                                .send_request(
                                    Request::post("/validate")
                                        .header("host", "webhook")
                                        .body(Full::new(body.clone()))
                                        .unwrap(),
                                )
                                .await
                                .unwrap();
                            assert_eq!(r.status(), 200);
                            r.into_body().collect().await.unwrap();
                        }
                    }));
                }
                for h in hs {
                    h.await.unwrap();
                }
                (before, start.elapsed())
            });
            let c = (tid_cpu(tid) - before) / (n * per) as f64;
            println!("{kind}: {:.0}/s, server cpu {c:.1} us/request", (n * per) as f64 / took.as_secs_f64());
            cost.push(c);
        }
        println!("ratio {:.2}", cost[5] / cost[0]);
    }
}
