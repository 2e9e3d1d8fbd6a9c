//! One scenario against one server.
//!
//! It must not know which server it is, and judges nothing.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    client::{Access, Answer, Call, Session},
    corpus::{Objects, Scenario, Step, Watch},
    kubernetes::{namespace, post},
    normal::Normal,
    settle::{PAUSE, settle},
    variables::Variables,
};

/// After the expected events nothing more may come for this long: what this looks for is a second event at once, not a late one.
const QUIET: Duration = Duration::from_millis(250);
/// Headers of an answer that are compared by value; others only by their presence, or not at all.
const COMPARED: [&str; 4] = ["content-type", "warning", "retry-after", "cache-control"];

/// What one request led to, normalised.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Number of the request in the scenario, and what it was.
    pub step: String,
    /// Everything that is compared.
    pub value: Value,
}

/// One side of a scenario on its way.
struct Replay {
    session: Session,
    objects: Objects,
    variables: Variables,
    normal: Normal,
    outcomes: Vec<Outcome>,
}

/// Replays a scenario in a namespace of this name.
pub(crate) async fn replay(
    access: &Access,
    objects: &Objects,
    scenario: &Scenario,
    name: &str,
) -> Result<Vec<Outcome>> {
    let mut variables = Variables::default();
    variables.set("ns", name);
    variables.set("policies", "/apis/redis.kun.io/v1/redispolicies");
    variables.set("clusters", &format!("/apis/redis.kun.io/v1/namespaces/{name}/redisclusters"));
    let mut replay = Replay {
        session: access.session(),
        objects: objects.clone(),
        variables,
        normal: Normal::default(),
        outcomes: Vec::new(),
    };
    let made = replay.session.send(&post("/api/v1/namespaces", &namespace(name))).await?;
    ensure!(made.status == 201, "namespace {name}: {}", String::from_utf8_lossy(&made.body));
    for step in &scenario.steps {
        replay.step(step).await?;
    }
    Ok(replay.outcomes)
}

impl Replay {
    async fn step(&mut self, step: &Step) -> Result<()> {
        if let Some(what) = step.settled {
            let namespace = self.variables.fill("${ns}");
            settle(&mut self.session, &namespace, what).await?;
        }
        if step.query.get("resourceVersion").is_some_and(|version| version == "0") {
            self.catch_up().await?;
        }
        let call = self.call(step);
        let label = format!("{}: {} {}", self.outcomes.len() + 1, call.method, self.normal.text(&call.target));
        let Some(watch) = &step.watch else {
            let value = match self.send(&call, step.until).await {
                Ok(answer) => {
                    self.remember(step, &answer);
                    if step.code_only { json!({"status": answer.status}) } else { self.compared(&answer) }
                }
                Err(error) => no_answer(&error),
            };
            self.outcomes.push(Outcome { step: label, value });
            return Ok(());
        };
        let at = self.outcomes.len();
        self.outcomes.push(Outcome { step: label, value: Value::Null });
        let value = Box::pin(self.watch(watch, &call)).await?;
        if let Some(outcome) = self.outcomes.get_mut(at) {
            outcome.value = value;
        }
        Ok(())
    }

    /// The first answer of this code, or else, after a while, the last one.
    async fn send(&mut self, call: &Call, until: Option<u16>) -> Result<Answer> {
        let begin = Instant::now();
        loop {
            let answer = self.session.send(call).await?;
            if until.is_none_or(|code| answer.status == code) || begin.elapsed() > hung::process() {
                return Ok(answer);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Has a server's cache follow its store: how far behind it is when "anything" is asked for would be chance.
    async fn catch_up(&mut self) -> Result<()> {
        for collection in ["${clusters}?limit=1", "${policies}?limit=1"] {
            let target = self.variables.fill(collection);
            let call = Call { method: "GET".to_owned(), target, headers: Vec::new(), body: Vec::new() };
            self.session.send(&call).await?;
        }
        Ok(())
    }

    async fn watch(&mut self, watch: &Watch, call: &Call) -> Result<Value> {
        let mut stream = match self.session.watch(call).await {
            Ok(stream) => stream,
            Err(error) => return Ok(no_answer(&error)),
        };
        for step in &watch.during {
            self.step(step).await?;
        }
        let wanted = watch.events;
        let enough = |lines: &[Vec<u8>]| {
            let counted = lines.iter().filter(|line| watch.bookmarks || !is_passing_bookmark(line)).count();
            wanted.is_some_and(|wanted| counted >= wanted)
        };
        let (lines, ended) = stream.lines(enough, QUIET, hung::answer()).await?;
        let mut value = self.compared(&stream.head);
        if stream.head.status == 200 {
            let kept = lines.iter().filter(|line| watch.bookmarks || !is_passing_bookmark(line));
            value["events"] = kept.map(|line| self.normal.body(&parse(line))).collect();
            value["ended"] = json!(ended);
        } else {
            value["body"] = self.normal.body(&parse(&lines.concat()));
        }
        Ok(value)
    }

    fn call(&self, step: &Step) -> Call {
        let method = step.method.clone().unwrap_or_else(|| "GET".to_owned());
        let mut target = self.variables.fill(&step.path);
        for (number, (name, value)) in step.query.iter().enumerate() {
            let sign = if number == 0 { '?' } else { '&' };
            target.push_str(&format!("{sign}{}={}", encode(name), encode(&self.variables.fill(value))));
        }
        let body = self.body(step);
        let mut headers: BTreeMap<String, Option<String>> =
            [("accept", "application/json"), ("user-agent", "differential")]
                .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
                .into();
        if !body.is_empty() {
            headers.insert("content-type".to_owned(), Some("application/json".to_owned()));
        }
        headers.extend(step.headers.clone());
        let headers = headers.into_iter().filter_map(|(name, value)| Some((name, self.variables.fill(&value?))));
        Call { method, target, headers: headers.collect(), body }
    }

    fn body(&self, step: &Step) -> Vec<u8> {
        if let Some(text) = &step.text {
            return self.variables.fill(text).into_bytes();
        }
        let mut body = match &step.object {
            None => step.body.clone(),
            Some(name) => {
                // What a refused request should have saved is not there; the other side may have it.
                let mut object = self.objects.get(name).cloned().unwrap_or_else(|| json!({}));
                if let Some(patch) = &step.body {
                    json_patch::merge(&mut object, patch);
                }
                Some(object)
            }
        };
        let filled = body.take().map(|body| self.variables.fill_value(&body));
        filled.map(|body| body.to_string().into_bytes()).unwrap_or_default()
    }

    fn remember(&mut self, step: &Step, answer: &Answer) {
        let body = parse(&answer.body);
        for (name, pointer) in &step.capture {
            if let Some(value) = body.pointer(pointer) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.variables.set(name, &text);
                self.normal.hide(&text, name);
            }
        }
        if let Some(name) = &step.save
            && answer.status < 300
        {
            self.objects.insert(name.clone(), body);
        }
    }

    /// Code, headers and body as they are compared.
    fn compared(&mut self, answer: &Answer) -> Value {
        let mut headers = serde_json::Map::new();
        for name in COMPARED {
            let values: Vec<&str> =
                answer.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
            if !values.is_empty() {
                headers.insert(name.to_owned(), json!(self.normal.text(&values.join(", "))));
            }
        }
        for name in ["etag", "audit-id"] {
            headers.insert(name.to_owned(), json!(answer.headers.contains_key(name)));
        }
        let yaml =
            answer.headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/yaml"));
        let body = if yaml { parse_yaml(&answer.body) } else { parse(&answer.body) };
        let indented = answer.body.starts_with(b"{\n");
        json!({
            "status": answer.status,
            "headers": headers,
            "body": self.normal.body(&body),
            "indented": indented,
        })
    }
}

/// A server that ends the connection instead of answering has answered, too. How it did so is up to the network.
fn no_answer(error: &anyhow::Error) -> Value {
    eprintln!("no answer: {error:#}");
    json!({"status": "no answer"})
}

/// A bookmark that came because of the time, not because the initial events were over.
fn is_passing_bookmark(line: &[u8]) -> bool {
    let event = parse(line);
    let end = event.pointer("/object/metadata/annotations/k8s.io~1initial-events-end");
    event.get("type") == Some(&json!("BOOKMARK")) && end.is_none()
}

/// JSON, or else text.
fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

fn parse_yaml(bytes: &[u8]) -> Value {
    let text = String::from_utf8_lossy(bytes);
    serde_saphyr::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned()))
}

/// Percent-encoding of everything that is not unreserved (RFC 3986).
fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
