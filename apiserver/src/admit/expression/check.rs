//! Types of an expression, found before it is evaluated; pure. What only its evaluation tells is of type `dyn`.

use std::collections::BTreeMap;

use super::kind::{self, Type};
use super::syntax::{Access, Expr, Form, Loop, Node};
use super::value::Value;
use super::{Issue, Scope, VARIABLES};

/// Names that are types.
const TYPES: [&str; 12] = [
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "dyn",
    "google.protobuf.Timestamp",
];

/// The type of an expression, and everything that is wrong with it.
pub(super) fn check(expr: &Expr, scope: &Scope) -> (Type, Vec<Issue>) {
    let mut checker = Checker { scope, locals: Vec::new(), issues: Vec::new() };
    let result = checker.infer(expr);
    let Checker { mut issues, .. } = checker;
    issues.sort_by_key(|issue| issue.at);
    (result, issues)
}

struct Checker<'a> {
    scope: &'a Scope,
    locals: Vec<(String, Type)>,
    issues: Vec<Issue>,
}

impl Checker<'_> {
    /// Notes what is wrong; the type then is not known.
    fn fault(&mut self, at: usize, text: String) -> Type {
        self.issues.push(Issue { at, text });
        Type::Dyn
    }

    fn infer(&mut self, expr: &Expr) -> Type {
        let at = expr.at;
        match &expr.node {
            Node::Literal(value) => literal(value),
            Node::Name(name) => match self.named(name) {
                Some(found) => found,
                None => self.fault(at, format!("undeclared reference to '{name}' (in container '')")),
            },
            Node::Select { of, field, access } => self.select(at, of, field, *access),
            Node::Index { of, key, optional } => self.index(at, of, key, *optional),
            Node::Call { target, name, args } => {
                let target = target.as_ref().map(|target| self.infer(target));
                let args: Vec<Type> = args.iter().map(|arg| self.infer(arg)).collect();
                self.call(at, name, target.as_ref(), &args)
            }
            Node::Operator { name, args } => {
                let args: Vec<Type> = args.iter().map(|arg| self.infer(arg)).collect();
                self.call(at, name, None, &args)
            }
            Node::And(terms) | Node::Or(terms) => self.logic(terms),
            Node::If(parts) => self.choice(at, parts),
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Object { name, fields } => self.object(at, name, fields),
            Node::Loop(inner) => self.repeat(at, inner),
            Node::OptMap { of, name, body, flat } => self.opt_map(at, of, name, body, *flat),
        }
    }

    fn named(&self, name: &str) -> Option<Type> {
        let local = self.locals.iter().rev().find(|(own, _)| own == name).map(|(_, of)| of.clone());
        let global = || self.scope.names.get(name).cloned();
        let of = if name == "null_type" { "null" } else { name };
        let of_type = || TYPES.contains(&name).then(|| Type::Of(Box::new(Type::plain(of))));
        local.or_else(global).or_else(of_type)
    }

    fn select(&mut self, at: usize, of: &Expr, field: &str, access: Access) -> Type {
        if let Node::Name(name) = &of.node
            && !self.locals.iter().any(|(own, _)| own == name)
            && let Some(found) = self.scope.names.get(&format!("{name}.{field}"))
        {
            return found.clone();
        }
        if let Some(name) = super::syntax::dotted(of).map(|name| format!("{name}.{field}"))
            && TYPES.contains(&name.as_str())
        {
            return Type::Of(Box::new(Type::plain(&name)));
        }
        let mut target = self.infer(of);
        let mut is_optional = access == Access::Optional;
        if let Type::Optional(inner) = target {
            target = *inner;
            is_optional = true;
        }
        let found = match &target {
            Type::Dyn | Type::Any(_) => Type::Dyn,
            Type::Map(both) => both.1.clone(),
            Type::Plain(name) if name == VARIABLES => {
                match self.scope.variables.as_ref().and_then(|variables| variables.get(field)) {
                    Some(of) => of.clone(),
                    None => return self.fault(at, format!("undefined field '{field}'")),
                }
            }
            Type::Plain(name) => match kind::fields(name) {
                Some(fields) => match fields.iter().find(|(own, _)| *own == field) {
                    Some((_, of)) => Type::read(of),
                    None => return self.fault(at, format!("undefined field '{field}'")),
                },
                None if name.starts_with("Object") => Type::Dyn,
                None => return self.fault(at, format!("type '{target}' does not support field selection")),
            },
            Type::List(_) | Type::Optional(_) | Type::Of(_) => {
                return self.fault(at, format!("type '{target}' does not support field selection"));
            }
        };
        match (access, is_optional) {
            (Access::Test, _) => Type::plain("bool"),
            (_, true) => Type::Optional(Box::new(found)),
            (_, false) => found,
        }
    }

    fn index(&mut self, at: usize, of: &Expr, key: &Expr, optional: bool) -> Type {
        let mut target = self.infer(of);
        let key = self.infer(key);
        let mut is_optional = optional;
        if let Type::Optional(inner) = target {
            target = *inner;
            is_optional = true;
        }
        let found = self.call(at, "_[_]", None, &[target, key]);
        if is_optional { Type::Optional(Box::new(found)) } else { found }
    }

    fn call(&mut self, at: usize, name: &str, target: Option<&Type>, args: &[Type]) -> Type {
        if !kind::is_function(name) {
            return self.fault(at, format!("undeclared reference to '{name}' (in container '')"));
        }
        match kind::result(name, target, args) {
            Some(result) => result,
            None => {
                let shown = kind::shown(target, args);
                self.fault(at, format!("found no matching overload for '{name}' applied to '{shown}'"))
            }
        }
    }

    fn logic(&mut self, terms: &[Expr]) -> Type {
        for term in terms {
            let of = self.infer(term);
            if of != Type::Dyn && !of.is("bool") {
                self.fault(term.at, format!("expected type 'bool' but found '{of}'"));
            }
        }
        Type::plain("bool")
    }

    fn choice(&mut self, at: usize, parts: &[Expr; 3]) -> Type {
        let [condition, then, otherwise] = parts.each_ref().map(|part| self.infer(part));
        let fits = condition == Type::Dyn || condition.is("bool");
        let mut bound = BTreeMap::new();
        let letter = Type::Any('A');
        if !fits || !letter.takes(&then, &mut bound) || !letter.takes(&otherwise, &mut bound) {
            let shown = kind::shown(None, &[condition, then, otherwise]);
            return self.fault(at, format!("found no matching overload for '_?_:_' applied to '{shown}'"));
        }
        match (then, otherwise) {
            (Type::Dyn, _) | (_, Type::Dyn) => Type::Dyn,
            (then, otherwise) if then.is("null") || then.is_vague() => otherwise,
            (then, _) => then,
        }
    }

    /// The one type of several values; known only later if one of them is.
    fn joined(&mut self, found: Option<Type>, at: usize, next: Type) -> Option<Type> {
        match found {
            None => Some(next),
            Some(Type::Dyn) => Some(Type::Dyn),
            Some(before) if next == Type::Dyn || before == next => Some(next),
            Some(before) => {
                if !before.takes(&next, &mut BTreeMap::new()) {
                    self.fault(at, format!("expected type '{before}' but found '{next}'"));
                }
                Some(before)
            }
        }
    }

    fn present(&mut self, expr: &Expr, optional: bool) -> Type {
        match (self.infer(expr), optional) {
            (Type::Optional(inner), true) => *inner,
            (other, true) if other != Type::Dyn => {
                self.fault(expr.at, format!("expected type 'optional_type({other})' but found '{other}'"))
            }
            (other, _) => other,
        }
    }

    fn list(&mut self, items: &[(bool, Expr)]) -> Type {
        let mut found = None;
        for (optional, item) in items {
            let next = self.present(item, *optional);
            found = self.joined(found, item.at, next);
        }
        Type::List(Box::new(found.unwrap_or(Type::Dyn)))
    }

    fn map(&mut self, entries: &[(bool, Expr, Expr)]) -> Type {
        let (mut keys, mut values) = (None, None);
        for (optional, key, value) in entries {
            let next = self.infer(key);
            keys = self.joined(keys, key.at, next);
            let next = self.present(value, *optional);
            values = self.joined(values, value.at, next);
        }
        Type::Map(Box::new((keys.unwrap_or(Type::Dyn), values.unwrap_or(Type::Dyn))))
    }

    fn object(&mut self, at: usize, name: &str, fields: &[(bool, String, Expr)]) -> Type {
        let is_object = name == "Object" || name.starts_with("Object.");
        if !self.scope.builds || !(is_object || name == "JSONPatch") {
            return self.fault(at, format!("undeclared reference to '{name}' (in container '')"));
        }
        for (optional, field, value) in fields {
            let given = self.present(value, *optional);
            if is_object || field == "value" {
                continue;
            }
            if !matches!(field.as_str(), "op" | "path" | "from") {
                self.fault(value.at, format!("undefined field '{field}'"));
            } else if given != Type::Dyn && !given.is("string") {
                let text = format!("expected type of field '{field}' is 'string' but provided type is '{given}'");
                self.fault(value.at, text);
            }
        }
        Type::plain(name)
    }

    fn repeat(&mut self, at: usize, inner: &Loop) -> Type {
        let over = self.infer(&inner.over);
        let (key, item) = match &over {
            Type::Dyn => (Type::Dyn, Type::Dyn),
            Type::List(item) => (Type::plain("int"), (**item).clone()),
            Type::Map(both) => both.as_ref().clone(),
            other => {
                let text = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.fault(inner.over.at, text);
                (Type::Dyn, Type::Dyn)
            }
        };
        let is_map = matches!(over, Type::Map(_));
        let before = self.locals.len();
        match inner.names.as_slice() {
            [first, second] => {
                self.locals.push((first.clone(), key.clone()));
                self.locals.push((second.clone(), item.clone()));
            }
            names => {
                let each = if is_map { key.clone() } else { item.clone() };
                self.locals.extend(names.iter().map(|name| (name.clone(), each.clone())));
            }
        }
        let result = self.form(at, inner, &over, key);
        self.locals.truncate(before);
        result
    }

    fn form(&mut self, at: usize, inner: &Loop, over: &Type, key: Type) -> Type {
        let condition = |checker: &mut Self, test: &Expr, name: &str| {
            let of = checker.infer(test);
            if of != Type::Dyn && !of.is("bool") {
                let shown = kind::shown(None, &[Type::plain("bool"), of]);
                checker.fault(at, format!("found no matching overload for '{name}' applied to '{shown}'"));
            }
        };
        match &inner.form {
            Form::All(test) => {
                condition(self, test, "_&&_");
                Type::plain("bool")
            }
            Form::Exists(test) => {
                condition(self, test, "_||_");
                Type::plain("bool")
            }
            Form::ExistsOne(test) => {
                condition(self, test, "_?_:_");
                Type::plain("bool")
            }
            Form::Filter(test) => {
                condition(self, test, "_?_:_");
                match over {
                    Type::Map(both) => Type::List(Box::new(both.0.clone())),
                    Type::List(_) => over.clone(),
                    _dynamic => Type::List(Box::new(Type::Dyn)),
                }
            }
            Form::Map(test, body) => {
                test.iter().for_each(|test| condition(self, test, "_?_:_"));
                Type::List(Box::new(self.infer(body)))
            }
            Form::ToMap(test, body) => {
                test.iter().for_each(|test| condition(self, test, "_?_:_"));
                let value = self.infer(body);
                Type::Map(Box::new((key, value)))
            }
            Form::ToEntries(test, body) => {
                test.iter().for_each(|test| condition(self, test, "_?_:_"));
                match self.infer(body) {
                    found @ Type::Map(_) => found,
                    _dynamic => Type::Map(Box::new((Type::Dyn, Type::Dyn))),
                }
            }
        }
    }

    fn opt_map(&mut self, at: usize, of: &Expr, name: &str, body: &Expr, flat: bool) -> Type {
        let inner = match self.infer(of) {
            Type::Optional(inner) => *inner,
            Type::Dyn => Type::Dyn,
            other => {
                let shown = kind::shown(Some(&other), &[]);
                return self.fault(at, format!("found no matching overload for 'hasValue' applied to '{shown}'"));
            }
        };
        self.locals.push((name.to_owned(), inner));
        let result = self.infer(body);
        self.locals.pop();
        if flat { result } else { Type::Optional(Box::new(result)) }
    }
}

fn literal(value: &Value) -> Type {
    match value {
        Value::Null => Type::plain("null"),
        other => Type::plain(other.kind()),
    }
}
