//! The grammar: words into a tree; pure. Macros are nodes of their own, not spelled out into loops.

use super::Issue;
use super::kind;
use super::token::{self, Token, Word};
use super::value::Value;

/// Deepest tree. Evaluation recurses, and an expression must not choose how much stack it takes.
const DEPTH_MAX: usize = 120;
/// Longest expression, in characters, as in Kubernetes.
const LENGTH_MAX: usize = 100_000;

/// A node and where it is, counted in characters.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) at: usize,
    pub(super) node: Node,
}

/// What a node is.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// A constant.
    Literal(Value),
    /// A name.
    Name(String),
    /// `of.field`, `of.?field`, or `has(of.field)`.
    Select { of: Box<Expr>, field: String, access: Access },
    /// `of[key]` or `of[?key]`.
    Index { of: Box<Expr>, key: Box<Expr>, optional: bool },
    /// A function, with its dots if it has a namespace.
    Call { target: Option<Box<Expr>>, name: String, args: Vec<Expr> },
    /// An operator on one or two values, by the name it has in Kubernetes' messages.
    Operator { name: &'static str, args: Vec<Expr> },
    /// All of them.
    And(Vec<Expr>),
    /// Any of them.
    Or(Vec<Expr>),
    /// Condition, then, otherwise.
    If(Box<[Expr; 3]>),
    /// Elements; true: only if there is a value.
    List(Vec<(bool, Expr)>),
    /// Entries; true: only if there is a value.
    Map(Vec<(bool, Expr, Expr)>),
    /// `Name{field: value}`.
    Object { name: String, fields: Vec<(bool, String, Expr)> },
    /// A loop over a list or a map.
    Loop(Box<Loop>),
    /// `of.optMap(name, body)`; `flat`: the body is optional itself.
    OptMap { of: Box<Expr>, name: String, body: Box<Expr>, flat: bool },
}

/// How a field is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It must be there.
    Plain,
    /// It may be absent.
    Optional,
    /// Is it there?
    Test,
}

/// A loop.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    pub(super) over: Expr,
    pub(super) names: Vec<String>,
    pub(super) form: Form,
}

/// What a loop makes.
#[derive(Clone, Debug)]
pub(super) enum Form {
    All(Expr),
    Exists(Expr),
    ExistsOne(Expr),
    Filter(Expr),
    /// Values, of those that pass.
    Map(Option<Expr>, Expr),
    /// A map with the same keys.
    ToMap(Option<Expr>, Expr),
    /// A map of the entries of small maps.
    ToEntries(Option<Expr>, Expr),
}

/// The tree of an expression.
pub(super) fn parse(source: &str) -> Result<Expr, Issue> {
    let length = source.chars().count();
    if length > LENGTH_MAX {
        let text = format!("expression code point size exceeds limit: size: {length}, limit {LENGTH_MAX}");
        return Err(Issue { at: 0, text });
    }
    let mut parser = Parser { tokens: token::read(source)?, next: 0, depth: 0 };
    let expr = parser.expression()?;
    match parser.peek() {
        Word::End => Ok(expr),
        _more => Err(parser.unexpected("<EOF>")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

type Parsed = Result<Expr, Issue>;

const RELATIONS: [(&str, &str); 6] =
    [("==", "_==_"), ("!=", "_!=_"), ("<", "_<_"), ("<=", "_<=_"), (">", "_>_"), (">=", "_>=_")];
const SUMS: [(&str, &str); 2] = [("+", "_+_"), ("-", "_-_")];
const PRODUCTS: [(&str, &str); 3] = [("*", "_*_"), ("/", "_/_"), ("%", "_%_")];
const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

impl Parser {
    fn peek(&self) -> &Word {
        self.tokens.get(self.next).map_or(&Word::End, |token| &token.word)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(0, |token| token.at)
    }

    fn take(&mut self) -> Word {
        let word = self.peek().clone();
        self.next = self.next.saturating_add(1).min(self.tokens.len().saturating_sub(1));
        word
    }

    fn eat(&mut self, sign: &str) -> bool {
        let is_here = matches!(self.peek(), Word::Sign(here) if *here == sign);
        if is_here {
            self.take();
        }
        is_here
    }

    fn expect(&mut self, sign: &str) -> Result<(), Issue> {
        if self.eat(sign) { Ok(()) } else { Err(self.unexpected(&format!("'{sign}'"))) }
    }

    fn unexpected(&self, wanted: &str) -> Issue {
        let found = match self.peek() {
            Word::Name(text) | Word::Int(text) | Word::Uint(text) => text.clone(),
            Word::Double(number) => number.to_string(),
            Word::Text(text) => format!("\"{text}\""),
            Word::Bytes(_) => "bytes".to_owned(),
            Word::Sign(sign) => (*sign).to_owned(),
            Word::End => "<EOF>".to_owned(),
        };
        Issue { at: self.at(), text: format!("Syntax error: mismatched input '{found}' expecting {wanted}") }
    }

    /// One level deeper while `inner` runs, up to the limit.
    fn deeper(&mut self, levels: usize) -> Result<(), Issue> {
        self.depth += levels;
        if self.depth <= DEPTH_MAX {
            return Ok(());
        }
        Err(Issue { at: self.at(), text: format!("expression recursion limit exceeded: {DEPTH_MAX}") })
    }

    fn expression(&mut self) -> Parsed {
        self.deeper(1)?;
        let condition = self.or()?;
        let at = self.at();
        let whole = if self.eat("?") {
            let then = self.or()?;
            self.expect(":")?;
            let otherwise = self.expression()?;
            Expr { at, node: Node::If(Box::new([condition, then, otherwise])) }
        } else {
            condition
        };
        self.depth -= 1;
        Ok(whole)
    }

    fn or(&mut self) -> Parsed {
        let first = self.and()?;
        let at = self.at();
        let mut terms = vec![first];
        while self.eat("||") {
            terms.push(self.and()?);
        }
        Ok(joined(at, terms, Node::Or))
    }

    fn and(&mut self) -> Parsed {
        let first = self.relation()?;
        let at = self.at();
        let mut terms = vec![first];
        while self.eat("&&") {
            terms.push(self.relation()?);
        }
        Ok(joined(at, terms, Node::And))
    }

    fn relation(&mut self) -> Parsed {
        let before = self.depth;
        let mut left = self.chain(&SUMS, |parser| parser.chain(&PRODUCTS, Self::unary))?;
        loop {
            let at = self.at();
            let name = match self.peek() {
                Word::Name(word) if word == "in" => "@in",
                Word::Sign(sign) => match RELATIONS.iter().find(|(text, _)| text == sign) {
                    Some((_, name)) => *name,
                    None => break,
                },
                _other => break,
            };
            self.take();
            self.deeper(1)?;
            let right = self.chain(&SUMS, |parser| parser.chain(&PRODUCTS, Self::unary))?;
            left = Expr { at, node: Node::Operator { name, args: vec![left, right] } };
        }
        self.depth = before;
        Ok(left)
    }

    /// Operators of one rank, from left to right.
    fn chain(&mut self, ranks: &[(&str, &'static str)], operand: impl Fn(&mut Self) -> Parsed) -> Parsed {
        let before = self.depth;
        let mut left = operand(self)?;
        loop {
            let at = self.at();
            let Word::Sign(sign) = self.peek() else { break };
            let Some((_, name)) = ranks.iter().find(|(text, _)| text == sign) else { break };
            self.take();
            self.deeper(1)?;
            let right = operand(self)?;
            left = Expr { at, node: Node::Operator { name, args: vec![left, right] } };
        }
        self.depth = before;
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let at = self.at();
        for (sign, name) in [("!", "!_"), ("-", "-_")] {
            if !self.eat(sign) {
                continue;
            }
            if let (Word::Int(digits), "-") = (self.peek(), sign) {
                let digits = format!("-{digits}");
                let literal = self.integer(&digits)?;
                self.take();
                return self.members(Expr { at, node: Node::Literal(literal) });
            }
            if let (Word::Double(number), "-") = (self.peek(), sign) {
                let literal = Value::Double(-number);
                self.take();
                return self.members(Expr { at, node: Node::Literal(literal) });
            }
            self.deeper(1)?;
            let operand = self.unary()?;
            self.depth -= 1;
            return Ok(Expr { at, node: Node::Operator { name, args: vec![operand] } });
        }
        let primary = self.primary()?;
        self.members(primary)
    }

    fn integer(&self, digits: &str) -> Result<Value, Issue> {
        let negative = digits.starts_with('-');
        let bare = digits.trim_start_matches('-');
        let magnitude = match bare.strip_prefix("0x") {
            Some(hex) => i128::from_str_radix(hex, 16),
            None => bare.parse::<i128>(),
        };
        let number = magnitude.ok().map(|number| if negative { -number } else { number });
        let number = number.and_then(|number| i64::try_from(number).ok());
        number.map(Value::Int).ok_or_else(|| Issue { at: self.at(), text: "invalid int literal".to_owned() })
    }

    fn primary(&mut self) -> Parsed {
        let at = self.at();
        self.eat(".");
        let literal = match self.peek().clone() {
            Word::Name(name) => return self.name(at, name),
            Word::Int(digits) => self.integer(&digits)?,
            Word::Uint(digits) => {
                let number = match digits.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => digits.parse(),
                };
                Value::Uint(number.map_err(|_| Issue { at, text: "invalid uint literal".to_owned() })?)
            }
            Word::Double(number) => Value::Double(number),
            Word::Text(text) => Value::String(text.into()),
            Word::Bytes(bytes) => Value::Bytes(bytes.into()),
            Word::Sign("(") => {
                self.take();
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Word::Sign("[") => return self.list(at),
            Word::Sign("{") => return self.map(at),
            Word::Sign(_) | Word::End => {
                return Err(self.unexpected("{'[', '{', '(', '.', '-', '!', literals, IDENTIFIER}"));
            }
        };
        self.take();
        Ok(Expr { at, node: Node::Literal(literal) })
    }

    fn name(&mut self, at: usize, name: String) -> Parsed {
        self.take();
        let node = match name.as_str() {
            "true" => Node::Literal(Value::Bool(true)),
            "false" => Node::Literal(Value::Bool(false)),
            "null" => Node::Literal(Value::Null),
            "in" => return Err(Issue { at, text: "Syntax error: mismatched input 'in'".to_owned() }),
            word if RESERVED.contains(&word) => return Err(Issue { at, text: format!("reserved identifier: {word}") }),
            _name => {
                let open = self.at();
                if !self.eat("(") {
                    return Ok(Expr { at, node: Node::Name(name) });
                }
                let args = self.arguments()?;
                if name == "has" {
                    return has(open, args);
                }
                return Ok(Expr { at: open, node: Node::Call { target: None, name, args } });
            }
        };
        Ok(Expr { at, node })
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, Issue> {
        let mut args = Vec::new();
        while !self.eat(")") {
            if !args.is_empty() {
                self.expect(",")?;
            }
            args.push(self.expression()?);
        }
        Ok(args)
    }

    fn list(&mut self, at: usize) -> Parsed {
        self.take();
        let mut items = Vec::new();
        while !self.eat("]") {
            if !items.is_empty() {
                self.expect(",")?;
                if self.eat("]") {
                    break;
                }
            }
            let optional = self.eat("?");
            items.push((optional, self.expression()?));
        }
        Ok(Expr { at, node: Node::List(items) })
    }

    fn map(&mut self, at: usize) -> Parsed {
        self.take();
        let mut entries = Vec::new();
        while !self.eat("}") {
            if !entries.is_empty() {
                self.expect(",")?;
                if self.eat("}") {
                    break;
                }
            }
            let optional = self.eat("?");
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((optional, key, self.expression()?));
        }
        Ok(Expr { at, node: Node::Map(entries) })
    }

    fn object(&mut self, at: usize, name: String) -> Parsed {
        let mut fields = Vec::new();
        while !self.eat("}") {
            if !fields.is_empty() {
                self.expect(",")?;
                if self.eat("}") {
                    break;
                }
            }
            let optional = self.eat("?");
            let Word::Name(field) = self.take() else { return Err(self.unexpected("IDENTIFIER")) };
            self.expect(":")?;
            fields.push((optional, field, self.expression()?));
        }
        Ok(Expr { at, node: Node::Object { name, fields } })
    }

    /// Fields, indexes and calls after a value.
    fn members(&mut self, mut of: Expr) -> Parsed {
        let before = self.depth;
        loop {
            let at = self.at();
            if self.eat(".") {
                let access = if self.eat("?") { Access::Optional } else { Access::Plain };
                let Word::Name(field) = self.peek().clone() else { return Err(self.unexpected("IDENTIFIER")) };
                self.take();
                let open = self.at();
                of = if access == Access::Plain && self.eat("(") {
                    let args = self.arguments()?;
                    called(open, of, field, args)?
                } else {
                    Expr { at, node: Node::Select { of: Box::new(of), field, access } }
                };
            } else if self.eat("[") {
                let optional = self.eat("?");
                let key = Box::new(self.expression()?);
                self.expect("]")?;
                of = Expr { at, node: Node::Index { of: Box::new(of), key, optional } };
            } else if let (Word::Sign("{"), Some(name)) = (self.peek(), dotted(&of)) {
                self.take();
                of = self.object(at, name)?;
            } else {
                break;
            }
            self.deeper(1)?;
        }
        self.depth = before;
        Ok(of)
    }
}

fn joined(at: usize, mut terms: Vec<Expr>, node: fn(Vec<Expr>) -> Node) -> Expr {
    match (terms.pop(), terms.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            terms.extend(last);
            Expr { at, node: node(terms) }
        }
    }
}

/// A name with dots.
pub(super) fn dotted(expr: &Expr) -> Option<String> {
    match &expr.node {
        Node::Name(name) => Some(name.clone()),
        Node::Select { of, field, access: Access::Plain } => Some(format!("{}.{field}", dotted(of)?)),
        _other => None,
    }
}

fn has(at: usize, args: Vec<Expr>) -> Parsed {
    let [argument] = <[Expr; 1]>::try_from(args).map_err(|_| no_overload(at, "has"))?;
    match argument.node {
        Node::Select { of, field, access: Access::Plain } => {
            Ok(Expr { at, node: Node::Select { of, field, access: Access::Test } })
        }
        _other => Err(Issue { at: argument.at, text: "invalid argument to has() macro".to_owned() }),
    }
}

fn no_overload(at: usize, name: &str) -> Issue {
    Issue { at, text: format!("undeclared reference to '{name}' (in container '')") }
}

/// A call on a value: a macro, a function with a namespace, or a function.
fn called(at: usize, target: Expr, name: String, args: Vec<Expr>) -> Parsed {
    if let Some(qualified) =
        dotted(&target).map(|prefix| format!("{prefix}.{name}")).filter(|name| kind::is_function(name))
    {
        return Ok(Expr { at, node: Node::Call { target: None, name: qualified, args } });
    }
    let names = match (name.as_str(), args.len()) {
        ("all" | "exists" | "exists_one" | "existsOne" | "filter", 2) | ("map", 2 | 3) => 1,
        ("all" | "exists" | "existsOne", 3) | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => 2,
        ("optMap" | "optFlatMap", 2) => return opt_map(at, target, name == "optFlatMap", args),
        _function => return Ok(Expr { at, node: Node::Call { target: Some(Box::new(target)), name, args } }),
    };
    let mut args = args.into_iter();
    let named: Vec<String> = args.by_ref().take(names).map(|arg| simple(&arg)).collect::<Result<_, _>>()?;
    let rest: Vec<Expr> = args.collect();
    let mut rest = rest.into_iter();
    let (first, second) = (rest.next(), rest.next());
    let Some(first) = first else { return Err(no_overload(at, &name)) };
    let (filter, body) = match second {
        Some(body) => (Some(first), body),
        None => (None, first),
    };
    let form = match name.as_str() {
        "all" => Form::All(body),
        "exists" => Form::Exists(body),
        "exists_one" | "existsOne" => Form::ExistsOne(body),
        "filter" => Form::Filter(body),
        "transformMap" => Form::ToMap(filter, body),
        "transformMapEntry" => Form::ToEntries(filter, body),
        _map => Form::Map(filter, body),
    };
    Ok(Expr { at, node: Node::Loop(Box::new(Loop { over: target, names: named, form })) })
}

fn opt_map(at: usize, target: Expr, flat: bool, args: Vec<Expr>) -> Parsed {
    let [name, body] = <[Expr; 2]>::try_from(args).map_err(|_| no_overload(at, "optMap"))?;
    Ok(Expr { at, node: Node::OptMap { of: Box::new(target), name: simple(&name)?, body: Box::new(body), flat } })
}

fn simple(expr: &Expr) -> Result<String, Issue> {
    match &expr.node {
        Node::Name(name) => Ok(name.clone()),
        _other => Err(Issue { at: expr.at, text: "argument must be a simple name".to_owned() }),
    }
}
