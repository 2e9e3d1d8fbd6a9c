//! Evaluation, bounded; pure. Every step is paid from a budget, in the units of Kubernetes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Program;
use super::call;
use super::operate;
use super::rights::{Answers, Question};
use super::syntax::{Access, Expr, Form, Loop, Node};
use super::value::{Key, Value, tenth};

/// Most that one expression may cost, as in Kubernetes: about a tenth of a second there.
pub(super) const CALL_COST_MAX: u64 = 1_000_000;
/// Longest string and largest list that may come to be: an expression must not choose how much memory it takes.
pub(super) const SIZE_MAX: usize = 4 * 1024 * 1024;
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
const OBJECT_COST: u64 = 40;

/// Why an evaluation ended without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its result is an error. `||`, `&&`, `all` and `exists` may not need it.
    Failed(String),
    /// This one expression cost too much.
    Costly,
    /// All of them together did.
    OutOfBudget,
    /// A question about rights has no answer yet.
    Ask(Box<Question>),
}

/// What comes of an evaluation.
pub type Stopped<T> = Result<T, Stop>;

impl Stop {
    pub(super) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    pub(super) fn no_overload() -> Self {
        Self::failed("no such overload")
    }
}

/// What evaluates: the values of names, the variables of a policy, what is known about rights, and a budget.
pub struct Machine<'a> {
    names: &'a BTreeMap<String, Value>,
    variables: &'a [(String, Result<Program, String>)],
    answers: &'a Answers,
    budget: Cell<u64>,
    call: Cell<u64>,
    known: RefCell<BTreeMap<&'a str, Stopped<Value>>>,
    /// How many expressions were looked at, which is what a budget is to bound.
    #[cfg(test)]
    pub(super) steps: Cell<u64>,
}

/// Names of loops, the innermost first.
pub(super) struct Locals<'l> {
    name: &'l str,
    value: Value,
    outer: Option<&'l Locals<'l>>,
}

type Here<'l> = Option<&'l Locals<'l>>;

impl<'a> Machine<'a> {
    /// A machine with this budget.
    #[must_use]
    pub fn new(
        names: &'a BTreeMap<String, Value>,
        variables: &'a [(String, Result<Program, String>)],
        answers: &'a Answers,
        budget: u64,
    ) -> Self {
        let (budget, call) = (Cell::new(budget), Cell::new(CALL_COST_MAX));
        Self {
            names,
            variables,
            answers,
            budget,
            call,
            known: RefCell::default(),
            #[cfg(test)]
            steps: Cell::default(),
        }
    }

    /// The value of an expression.
    pub fn run(&self, program: &Program) -> Stopped<Value> {
        let before = self.call.replace(CALL_COST_MAX);
        let value = self.eval(&program.root, None);
        self.call.set(before);
        value
    }

    /// Pays.
    pub(super) fn spend(&self, cost: u64) -> Stopped<()> {
        let left = |purse: &Cell<u64>| purse.get().checked_sub(cost);
        let Some(call) = left(&self.call) else { return Err(Stop::Costly) };
        let Some(budget) = left(&self.budget) else { return Err(Stop::OutOfBudget) };
        self.budget.set(budget);
        self.call.set(call);
        Ok(())
    }

    pub(super) fn answers(&self) -> &'a Answers {
        self.answers
    }

    fn eval(&self, expr: &Expr, here: Here<'_>) -> Stopped<Value> {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
        match &expr.node {
            Node::Literal(value) => Ok(value.clone()),
            Node::Name(name) => {
                self.spend(1)?;
                self.named(name, here)
            }
            Node::Select { of, field, access } => self.select(of, field, *access, here),
            Node::Index { of, key, optional } => self.index(of, key, *optional, here),
            Node::Call { target, name, args } => {
                let target = target.as_ref().map(|target| self.eval(target, here)).transpose()?;
                let args: Vec<Value> = args.iter().map(|arg| self.eval(arg, here)).collect::<Stopped<_>>()?;
                self.spend(1)?;
                call::call(self, name, target, args)
            }
            Node::Operator { name, args } => {
                let args: Vec<Value> = args.iter().map(|arg| self.eval(arg, here)).collect::<Stopped<_>>()?;
                self.spend(1)?;
                operate::operate(self, name, &args)
            }
            Node::And(terms) => self.logic(terms, false, here),
            Node::Or(terms) => self.logic(terms, true, here),
            Node::If(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                match self.eval(condition, here)? {
                    Value::Bool(true) => self.eval(then, here),
                    Value::Bool(false) => self.eval(otherwise, here),
                    _other => Err(Stop::no_overload()),
                }
            }
            Node::List(items) => self.list(items, here),
            Node::Map(entries) => self.map(entries, here),
            Node::Object { name, fields } => self.object(name, fields, here),
            Node::Loop(inner) => self.repeat(inner, here),
            Node::OptMap { of, name, body, flat } => self.opt_map(of, name, body, *flat, here),
        }
    }

    fn named(&self, name: &str, here: Here<'_>) -> Stopped<Value> {
        let mut local = here;
        while let Some(found) = local {
            if found.name == name {
                return Ok(found.value.clone());
            }
            local = found.outer;
        }
        if name == "variables" {
            return Ok(Value::Variables);
        }
        Ok(self.names.get(name).cloned().unwrap_or_else(|| Value::Type(name.into())))
    }

    /// The value of a variable, found once.
    fn variable(&self, name: &str) -> Stopped<Value> {
        let found = self.variables.iter().find(|(own, _)| own == name);
        let Some((name, program)) = found else { return Err(Stop::failed(format!("no such key: {name}"))) };
        if let Some(known) = self.known.borrow().get(name.as_str()) {
            return known.clone();
        }
        let value = match program {
            Err(why) => Err(Stop::failed(format!("composited variable {name:?} fails to compile: {why}"))),
            Ok(program) => self.run(program).map_err(|stop| match stop {
                Stop::Failed(why) => Stop::failed(format!("composited variable {name:?} fails to evaluate: {why}")),
                other => other,
            }),
        };
        self.known.borrow_mut().insert(name, value.clone());
        value
    }

    fn select(&self, of: &Expr, field: &str, access: Access, here: Here<'_>) -> Stopped<Value> {
        if let Node::Name(name) = &of.node
            && name == "authorizer"
            && let Some(value) = self.names.get(&format!("{name}.{field}"))
        {
            self.spend(1)?;
            return Ok(value.clone());
        }
        if let Some(name) = super::syntax::dotted(of)
            && name == "google.protobuf"
        {
            return Ok(Value::Type(format!("{name}.{field}").into()));
        }
        let target = self.eval(of, here)?;
        self.spend(u64::from(access != Access::Test))?;
        let (target, chained) = match target {
            Value::Optional(None) if access == Access::Test => return Ok(Value::Bool(false)),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, false),
        };
        let found = match &target {
            Value::Map(entries) => entries.get(&Key::String(field.into())).cloned(),
            Value::Object(_, fields) => fields.get(field).cloned(),
            Value::Variables => Some(self.variable(field)?),
            _no_fields => None,
        };
        match access {
            Access::Test => Ok(Value::Bool(found.is_some())),
            Access::Plain if !chained => found.ok_or_else(|| Stop::failed(format!("no such key: {field}"))),
            Access::Plain | Access::Optional => Ok(Value::Optional(found.map(Arc::new))),
        }
    }

    fn index(&self, of: &Expr, key: &Expr, optional: bool, here: Here<'_>) -> Stopped<Value> {
        let (target, key) = (self.eval(of, here)?, self.eval(key, here)?);
        self.spend(1)?;
        let (target, optional) = match target {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, optional),
        };
        match (operate::item(&target, &key), optional) {
            (Ok(value), true) => Ok(Value::Optional(Some(Arc::new(value)))),
            (Err(_absent), true) => Ok(Value::Optional(None)),
            (found, false) => found,
        }
    }

    /// `&&` and `||`: one term that decides is enough, whatever is wrong with the others.
    fn logic(&self, terms: &[Expr], decides: bool, here: Here<'_>) -> Stopped<Value> {
        let mut wrong = None;
        for term in terms {
            match self.eval(term, here) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_other) => wrong = wrong.or(Some(Stop::no_overload())),
                Err(failed @ Stop::Failed(_)) => wrong = wrong.or(Some(failed)),
                Err(stop) => return Err(stop),
            }
        }
        wrong.map_or(Ok(Value::Bool(!decides)), Err)
    }

    /// The value of an element; `None`: it is optional and there is none.
    fn present(&self, expr: &Expr, optional: bool, here: Here<'_>) -> Stopped<Option<Value>> {
        let value = self.eval(expr, here)?;
        match (value, optional) {
            (Value::Optional(value), true) => Ok(value.map(|value| (*value).clone())),
            (_other, true) => Err(Stop::failed("cannot initialize optional element from a non-optional value")),
            (value, false) => Ok(Some(value)),
        }
    }

    fn list(&self, items: &[(bool, Expr)], here: Here<'_>) -> Stopped<Value> {
        self.spend(LIST_COST)?;
        let mut list = Vec::with_capacity(items.len());
        for (optional, item) in items {
            list.extend(self.present(item, *optional, here)?);
        }
        Ok(Value::list(list))
    }

    fn map(&self, entries: &[(bool, Expr, Expr)], here: Here<'_>) -> Stopped<Value> {
        self.spend(MAP_COST)?;
        let mut map = BTreeMap::new();
        for (optional, key, value) in entries {
            let key = self.eval(key, here)?;
            let key = Key::of(&key).ok_or_else(|| Stop::failed(format!("unsupported key type: {}", key.kind())))?;
            if let Some(value) = self.present(value, *optional, here)? {
                map.insert(key, value);
            }
        }
        Ok(Value::Map(Arc::new(map)))
    }

    fn object(&self, name: &str, fields: &[(bool, String, Expr)], here: Here<'_>) -> Stopped<Value> {
        self.spend(OBJECT_COST)?;
        let mut object = BTreeMap::new();
        for (optional, field, value) in fields {
            if let Some(value) = self.present(value, *optional, here)? {
                object.insert(field.clone(), value);
            }
        }
        Ok(Value::Object(name.into(), Arc::new(object)))
    }

    fn opt_map(&self, of: &Expr, name: &str, body: &Expr, flat: bool, here: Here<'_>) -> Stopped<Value> {
        match self.eval(of, here)? {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(value)) => {
                let local = Locals { name, value: (*value).clone(), outer: here };
                let result = self.eval(body, Some(&local))?;
                Ok(if flat { result } else { Value::Optional(Some(Arc::new(result))) })
            }
            _other => Err(Stop::no_overload()),
        }
    }

    fn repeat(&self, inner: &Loop, here: Here<'_>) -> Stopped<Value> {
        let over = self.eval(&inner.over, here)?;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        match &over {
            Value::List(items) => {
                self.spend(tenth(items.len()))?;
                keys.extend((0_i64..).take(items.len()).map(Value::Int));
                values.extend(items.iter().cloned());
            }
            Value::Map(entries) => {
                self.spend(tenth(entries.len()))?;
                keys.extend(entries.keys().map(Key::value));
                values.extend(entries.values().cloned());
            }
            _other => return Err(Stop::no_overload()),
        }
        let is_map = matches!(over, Value::Map(_));
        let mut made = Made::new(&inner.form);
        for (key, value) in keys.into_iter().zip(values) {
            let done = match inner.names.as_slice() {
                [first, second] => {
                    let outer = Locals { name: first, value: key.clone(), outer: here };
                    let local = Locals { name: second, value: value.clone(), outer: Some(&outer) };
                    self.turn(inner, &mut made, (&key, &value), Some(&local))?
                }
                names => {
                    let each = if is_map { &key } else { &value };
                    let name = names.first().map_or("", String::as_str);
                    let local = Locals { name, value: each.clone(), outer: here };
                    self.turn(inner, &mut made, (&key, each), Some(&local))?
                }
            };
            if done {
                break;
            }
        }
        made.value()
    }

    /// One turn of a loop; true: the rest cannot change what it makes.
    fn turn(&self, inner: &Loop, made: &mut Made, item: (&Value, &Value), here: Here<'_>) -> Stopped<bool> {
        self.spend(1)?;
        let (test, body) = match &inner.form {
            Form::All(test) | Form::Exists(test) => {
                let decides = matches!(inner.form, Form::Exists(_));
                match self.logic(std::slice::from_ref(test), decides, here) {
                    Ok(Value::Bool(value)) if value == decides => {
                        *made = Made::Decided(decides);
                        return Ok(true);
                    }
                    Ok(_goes_on) => {}
                    Err(failed @ Stop::Failed(_)) => made.note(failed),
                    Err(stop) => return Err(stop),
                }
                return Ok(false);
            }
            Form::ExistsOne(test) | Form::Filter(test) => (Some(test), None),
            Form::Map(test, body) | Form::ToMap(test, body) | Form::ToEntries(test, body) => {
                (test.as_ref(), Some(body))
            }
        };
        if let Some(test) = test {
            match self.eval(test, here)? {
                Value::Bool(true) => {}
                Value::Bool(false) => return Ok(false),
                _other => return Err(Stop::no_overload()),
            }
        }
        let body = body.map(|body| self.eval(body, here)).transpose()?;
        made.take(item, body)?;
        Ok(false)
    }
}

/// What a loop has made so far.
enum Made {
    /// `all` and `exists`: what it is if nothing decides, and what went wrong meanwhile.
    Undecided(bool, Option<Stop>),
    Decided(bool),
    Count(u64),
    List(Vec<Value>),
    Map(BTreeMap<Key, Value>, bool),
}

impl Made {
    fn new(form: &Form) -> Self {
        match form {
            Form::All(_) => Self::Undecided(true, None),
            Form::Exists(_) => Self::Undecided(false, None),
            Form::ExistsOne(_) => Self::Count(0),
            Form::Filter(_) | Form::Map(..) => Self::List(Vec::new()),
            Form::ToMap(..) => Self::Map(BTreeMap::new(), false),
            Form::ToEntries(..) => Self::Map(BTreeMap::new(), true),
        }
    }

    fn note(&mut self, failed: Stop) {
        if let Self::Undecided(_, wrong @ None) = self {
            *wrong = Some(failed);
        }
    }

    fn take(&mut self, (key, item): (&Value, &Value), body: Option<Value>) -> Stopped<()> {
        match self {
            Self::Undecided(..) | Self::Decided(_) => {}
            Self::Count(count) => *count = count.saturating_add(1),
            Self::List(list) => list.push(body.unwrap_or_else(|| item.clone())),
            Self::Map(map, false) => {
                let key = Key::of(key).ok_or_else(Stop::no_overload)?;
                map.insert(key, body.unwrap_or(Value::Null));
            }
            Self::Map(map, true) => {
                let Some(Value::Map(entries)) = body else { return Err(Stop::no_overload()) };
                for (key, value) in entries.iter() {
                    if map.insert(key.clone(), value.clone()).is_some() {
                        return Err(Stop::failed(format!("insert failed: key {key} already exists")));
                    }
                }
            }
        }
        Ok(())
    }

    fn value(self) -> Stopped<Value> {
        match self {
            Self::Undecided(_, Some(failed)) => Err(failed),
            Self::Undecided(value, None) | Self::Decided(value) => Ok(Value::Bool(value)),
            Self::Count(count) => Ok(Value::Bool(count == 1)),
            Self::List(list) => Ok(Value::list(list)),
            Self::Map(map, _) => Ok(Value::Map(Arc::new(map))),
        }
    }
}
