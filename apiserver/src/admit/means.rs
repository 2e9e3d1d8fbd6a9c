//! What the chain works with, and how a question about rights gets its answer: the only thing expressions wait for.

use crate::admission::Attributes;
use crate::filter::authz::{self, Authorizer, Decision, Target};
use crate::request::{ResourcePath, User};

use super::call::Caller;
use super::count::Counts;
use super::expression::{Answer, Answers, Asker, Question};
use super::source::Sources;

/// Most questions about rights that one set of expressions may ask. Their cost allows 28; this is the bound of the loop.
const QUESTIONS_MAX: usize = 64;

/// What the chain works with.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) sources: &'a dyn Sources,
    pub(super) caller: &'a Caller,
    pub(super) authorizer: Option<&'a dyn Authorizer>,
    pub(super) counts: &'a Counts,
}

impl Means<'_> {
    /// Evaluates until no question is open. `run` is pure and begins anew each time.
    pub(super) async fn settled<T>(
        &self,
        attributes: &Attributes,
        answers: &mut Answers,
        run: impl Fn(&Answers) -> Result<T, Box<Question>>,
    ) -> Option<T> {
        for _ in 0..QUESTIONS_MAX {
            // Evaluating is work without a pause: this is where a request that is out of time can end.
            tokio::task::yield_now().await;
            let question = match run(answers) {
                Ok(found) => return Some(found),
                Err(question) => question,
            };
            let answer = self.answer(&question, attributes).await;
            answers.insert(*question, answer);
        }
        None
    }

    async fn answer(&self, question: &Question, attributes: &Attributes) -> Answer {
        let unknown = |why: String| Answer { allowed: false, reason: String::new(), error: Some(why) };
        let Some(authorizer) = self.authorizer else {
            return unknown("this server was given no authorizer to ask".to_owned());
        };
        let user = user(&question.asker, attributes);
        match authorizer.authorize(&user, &asked(question)).await {
            Ok(Decision::Allow(reason)) => Answer { allowed: true, reason, error: None },
            Ok(Decision::Deny(reason) | Decision::NoOpinion(reason)) => Answer { allowed: false, reason, error: None },
            Err(error) => unknown(error.to_string()),
        }
    }
}

fn user(asker: &Asker, attributes: &Attributes) -> User {
    match asker {
        Asker::Requester => attributes.user.clone(),
        Asker::ServiceAccount(namespace, name) => User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
            ..User::default()
        },
    }
}

/// The question as the authorizer takes it.
fn asked(question: &Question) -> authz::Attributes {
    let Question { asker: _, verb, path, group, resource, subresource, namespace, name, selectors } = question;
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    if !path.is_empty() {
        return authz::Attributes::new(verb.clone(), Target::Path(path.clone()));
    }
    let target = Target::Resource(ResourcePath {
        group: group.clone(),
        version: "*".to_owned(),
        resource: resource.clone(),
        subresource: some(subresource),
        namespace: some(namespace),
        name: some(name),
        selected_name: None,
    });
    let selector = |name: &str| selectors.get(name).cloned();
    authz::Attributes {
        field_selector: selector("fieldSelector"),
        label_selector: selector("labelSelector"),
        ..authz::Attributes::new(verb.clone(), target)
    }
}
