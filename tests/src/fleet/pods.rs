//! An API server that holds the fleet's pods and nothing else: it shows one, and deletes one whose uid is named.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Name → uid.
#[derive(Clone, Default)]
pub struct Pods {
    held: Arc<Mutex<BTreeMap<String, String>>>,
    deleted: Arc<Mutex<Vec<String>>>,
}

impl Pods {
    /// Serves as long as the runtime lives; gives where.
    pub async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let pods = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let pods = pods.clone();
                tokio::spawn(async move { pods.answer(stream).await });
            }
        });
        url
    }

    /// A pod of that name is made, in place of one that was there.
    pub fn make(&self, name: &str, uid: &str) {
        self.held.lock().unwrap().insert(name.to_owned(), uid.to_owned());
    }

    /// The pod of that name is gone.
    pub fn end(&self, name: &str) {
        self.held.lock().unwrap().remove(name);
    }

    pub fn uid(&self, name: &str) -> Option<String> {
        self.held.lock().unwrap().get(name).cloned()
    }

    /// Those that were deleted, in order.
    pub fn deleted(&self) -> Vec<String> {
        self.deleted.lock().unwrap().clone()
    }

    /// One request of one connection.
    async fn answer(&self, mut stream: TcpStream) {
        let request = request(&mut stream).await;
        let mut words = request.split_whitespace();
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let name = path.split('?').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let (code, body) = match (method, self.uid(name)) {
            ("GET", Some(uid)) => (200, pod(name, &uid)),
            ("DELETE", Some(uid)) if request.contains(&format!("\"uid\":\"{uid}\"")) => {
                self.held.lock().unwrap().remove(name);
                self.deleted.lock().unwrap().push(name.to_owned());
                (200, status(200, "Success", ""))
            }
            ("DELETE", Some(_)) => (409, status(409, "Failure", "Conflict")),
            (_, _) => (404, status(404, "Failure", "NotFound")),
        };
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        // Who has hung up wants no answer.
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    }
}

fn pod(name: &str, uid: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "1"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
}

fn status(code: u16, status: &str, reason: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": status, "reason": reason, "code": code})
}

/// Head and body.
async fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).await.unwrap_or(0);
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let length = |head: &str| {
            let lower = head.to_lowercase();
            lower.split("content-length:").nth(1).and_then(|rest| rest.split("\r\n").next()?.trim().parse().ok())
        };
        let is_whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| body.len() >= length(head).unwrap_or(0));
        if read == 0 || is_whole {
            return text;
        }
    }
}
