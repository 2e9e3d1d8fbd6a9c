#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use serde_json::json;

use super::*;

/// Kubernetes' budget for one policy, binding and parameter.
const BUDGET: u64 = 10_000_000;

fn names() -> BTreeMap<String, Value> {
    let object = json!({
        "metadata": {"name": "orders", "labels": {"app.io/team": "a"}},
        "spec": {"shards": 3, "memory": "2Gi", "items": [{"n": 1}, {"n": 2}], "none": null},
    });
    let asker = Rights::Authorizer(Asker::Requester);
    let resource = Question { group: "g".into(), resource: "r".into(), ..Question::default() };
    BTreeMap::from([
        ("object".to_owned(), Value::of(&object)),
        ("oldObject".to_owned(), Value::Null),
        ("request".to_owned(), Value::of(&json!({"operation": "CREATE", "userInfo": {"groups": ["x"]}}))),
        ("namespaceObject".to_owned(), Value::Null),
        ("authorizer".to_owned(), Value::Rights(asker.into())),
        ("authorizer.requestResource".to_owned(), Value::Rights(Rights::Resource(resource).into())),
    ])
}

fn scope() -> Scope {
    Scope::admission().with_authorizer().with_variables().with_patches()
}

fn run_with(source: &str, answers: &Answers, budget: u64) -> Stopped<Value> {
    let program = Program::compile(source, &scope()).unwrap_or_else(|why| panic!("{source}: {why}"));
    let names = names();
    Machine::new(&names, &[], answers, budget).run(&program)
}

fn run(source: &str) -> Stopped<Value> {
    run_with(source, &Answers::new(), BUDGET)
}

#[track_caller]
fn is_true(source: &str) {
    assert_eq!(run(source), Ok(Value::Bool(true)), "{source}");
}

#[track_caller]
fn fails(source: &str, why: &str) {
    assert_eq!(run(source), Err(Stop::failed(why)), "{source}");
}

fn refused(source: &str) -> String {
    Program::compile(source, &scope()).err().unwrap_or_else(|| panic!("{source} was understood"))
}

#[test]
fn operators_have_the_ranks_and_meanings_of_the_language() {
    for source in [
        "1 + 2 * 3 == 7 && !false",
        "!!true && !!!false",
        "--1 == 1 && -9223372036854775808 < 0",
        "(1 < 2) == true && 2 >= 2 && 'a' < 'b'",
        "true ? 1 == 1 : 1/0 == 1",
        "7 % 3 == 1 && -7 / 2 == -3 && 7u / 2u == 3u",
        "dyn(1) == 1.0 && 1 < 1.5 && 2u > 1",
        "dyn('1') != 1 && null == null",
        "[1, 2] + [3] == [1, 2, 3] && 2 in [1, 2]",
        "'a' in {'a': 1} && !('b' in {'a': 1})",
        "'ab' + 'c' == \"abc\" && b'a' + b'b' == b'ab'",
        "timestamp('2026-01-01T00:00:00Z') + duration('36h') > timestamp('2026-01-02T00:00:00Z')",
    ] {
        is_true(source);
    }
    fails("1 / 0 == 1", "division by zero");
    fails("1 % 0 == 1", "modulus by zero");
    fails("9223372036854775807 + 1 > 0", "integer overflow");
    fails("[1][5] == 1", "index out of bounds: 5");
}

#[test]
fn fields_that_are_absent_are_errors_and_can_be_asked_for() {
    for source in [
        "object.spec.shards == 3 && object['spec']['shards'] == 3",
        "has(object.spec.shards) && !has(object.spec.absent) && !has(object.spec.shards.below)",
        "object.metadata.labels['app.io/team'] == 'a'",
        "object.?spec.?absent.orValue(7) == 7 && object.?spec.shards.orValue(7) == 3",
        "object.spec[?'shards'].hasValue() && !object[?'x'].hasValue()",
        "object.?spec.?shards.optMap(n, n + 1).value() == 4",
        "[?object.?absent, ?object.?spec.?shards] == [3]",
        "oldObject == null && namespaceObject == null",
        "type(object.spec.shards) == int && type('') == string && type(null) == null_type",
    ] {
        is_true(source);
    }
    fails("object.spec.absent == 1", "no such key: absent");
    fails("object.spec.shards.below == 1", "no such key: below");
    fails("object.spec.none.below == 1", "no such key: below");
    fails("oldObject.spec == 1", "no such key: spec");
}

#[test]
fn an_error_does_not_count_where_something_else_decides() {
    is_true("object.absent || true");
    is_true("true || object.absent");
    is_true("!(object.absent && false)");
    is_true("[0, 1].exists(i, 1 / i == 1)");
    is_true("![0, 1].all(i, 1 / i == 2)");
    fails("object.absent || false", "no such key: absent");
    fails("[0, 1].all(i, 1 / i == 1)", "division by zero");
    fails("object.spec.shards || false", "no such overload");
}

#[test]
fn loops_go_over_lists_and_maps() {
    for source in [
        "object.spec.items.all(i, i.n > 0) && object.spec.items.exists_one(i, i.n == 2)",
        "object.spec.items.map(i, i.n * 2) == [2, 4]",
        "object.spec.items.map(i, i.n > 1, i.n) == [2]",
        "object.spec.items.filter(i, i.n > 1).size() == 1",
        "{'a': 1, 'b': 2}.all(k, k in ['a', 'b'])",
        "{'a': 1}.exists(k, v, k == 'a' && v == 1) && [5].all(i, v, i == 0 && v == 5)",
        "[5, 6].transformList(i, v, i + v) == [5, 7]",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "['a'].transformMapEntry(i, v, {v: i}) == {'a': 0}",
        "[1, 2].map(i, [3, 4].map(j, i * j)) == [[3, 4], [6, 8]]",
    ] {
        is_true(source);
    }
}

#[test]
fn the_library_of_kubernetes_is_there() {
    for source in [
        "quantity(object.spec.memory).isLessThan(quantity('4Gi')) && quantity('1Gi') == quantity('1024Mi')",
        "isQuantity('k') && quantity('k') == quantity('0') && !isQuantity('orders') && sign(quantity('-1')) == -1",
        "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3') && string(ip('::1')) == '::1'",
        "semver('1.2.3').isGreaterThan(semver('1.2.2')) && isSemver('1.0.0')",
        "url('https://a.b:80/c?d=e').getHostname() == 'a.b' && isURL('https://a')",
        "'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b' && 'abc'.substring(1) == 'bc'",
        "'Ab'.lowerAscii() == 'ab' && 'x-y'.replace('-', '+') == 'x+y' && ' a '.trim() == 'a'",
        "'a%s%d'.format([dyn('x'), 1]) == 'ax1' && 'abcabc'.lastIndexOf('c') == 5 && 'abc'.charAt(1) == 'b'",
        "'abc'.matches('^a.c$') && 'a1b2'.findAll('[0-9]') == ['1', '2'] && 'a1'.find('[0-9]') == '1'",
        "[3, 1].max() == 3 && [1, 2].sum() == 3 && [1, 2].isSorted() && [1, 2].indexOf(2) == 1",
        "sets.contains([1, 2], [1]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])",
        "!format.dns1123Label().validate('a-b').hasValue() && format.named('uuid').hasValue()",
        "jsonpatch.escapeKey('a/b') == 'a~1b'",
        "int('3') == 3 && string(3) == '3' && double(1) == 1.0 && uint(2) == 2u && bool('true')",
        "size('äb') == 2 && 'äb'.size() == 2 && size({'a': 1}) == 1",
        "duration('1h30m').getMinutes() == 90 && timestamp('2026-03-04T05:06:07Z').getHours('+02:00') == 7",
    ] {
        is_true(source);
    }
    fails("int('x') == 1", "type conversion error from 'string' to 'int'");
    fails("'a'.matches('(')", "error parsing regexp: error: unclosed group");
}

#[test]
fn what_cannot_be_understood_is_told_in_the_words_of_kubernetes() {
    let table = [
        ("object.x == foo", "1:13: undeclared reference to 'foo' (in container '')"),
        ("request.foo == ''", "1:8: undefined field 'foo'"),
        ("variables.foo", "1:10: undefined field 'foo'"),
        ("1 + 'a' == 2", "1:3: found no matching overload for '_+_' applied to '(int, string)'"),
        ("'a'.startsWith(1)", "1:15: found no matching overload for 'startsWith' applied to 'string.(int)'"),
        ("nothing(1)", "1:8: undeclared reference to 'nothing' (in container '')"),
        ("[1, 'a'] == []", "1:5: expected type 'int' but found 'string'"),
        ("request.operation.x", "1:18: type 'string' does not support field selection"),
        ("has(object)", "1:5: invalid argument to has() macro"),
        ("Objects{}", "1:8: undeclared reference to 'Objects' (in container '')"),
        (
            "object.\n  x &&",
            "2:7: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', literals, IDENTIFIER}",
        ),
        (
            "request.name.all(c, true)",
            "1:8: expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
    ];
    for (source, wanted) in table {
        let told = refused(source);
        assert!(told.starts_with(&format!("compilation failed: ERROR: <input>:{wanted}\n | ")), "{source}: {told}");
    }
    assert_eq!(
        refused("object.x == foo"),
        "compilation failed: ERROR: <input>:1:13: undeclared reference to 'foo' (in container '')\n | object.x == foo\n | ............^"
    );
    let to = Program::compile_to("object.x", &scope(), &["bool"]).unwrap_err();
    assert_eq!(to, "must evaluate to bool but got dyn");
    let to = Program::compile_to("1", &scope(), &["string", "null"]).unwrap_err();
    assert_eq!(to, "must evaluate to one of [string null_type] but got int");
}

#[test]
fn objects_and_patches_can_be_built_where_they_are_wanted() {
    let built = run("Object{spec: Object.spec{shards: 4, ?none: optional.none()}}").unwrap();
    assert_eq!(built.json(), Ok(json!({"spec": {"shards": 4}})));
    let built = run("[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/c'), value: {'x': 1}}]").unwrap();
    assert_eq!(built.json(), Ok(json!([{"op": "add", "path": "/a/b~1c", "value": {"x": 1}}])));
    let plain = Program::compile("Object{}", &Scope::admission()).unwrap_err();
    assert!(plain.contains("undeclared reference to 'Object' (in container '')"), "{plain}");
}

#[test]
fn a_right_is_asked_for_and_then_known() {
    let source = "authorizer.group('g').resource('r').namespace('n').check('delete').allowed() || false";
    let Err(Stop::Ask(question)) = run(source) else { panic!("nothing was asked") };
    let wanted = Question {
        verb: "delete".into(),
        group: "g".into(),
        resource: "r".into(),
        namespace: "n".into(),
        ..Question::default()
    };
    assert_eq!(*question, wanted);
    let answers = Answers::from([(wanted, Answer { allowed: true, reason: "because".into(), error: None })]);
    assert_eq!(run_with(source, &answers, BUDGET), Ok(Value::Bool(true)));
    let Err(Stop::Ask(question)) = run("authorizer.serviceAccount('n', 'a').path('/x').check('get').allowed()") else {
        panic!("nothing was asked")
    };
    assert_eq!((question.path.as_str(), &question.asker), ("/x", &Asker::ServiceAccount("n".into(), "a".into())));
    assert!(matches!(run("authorizer.requestResource.check('create').allowed()"), Err(Stop::Ask(_))));
    fails("authorizer.path('').check('get').allowed()", "path must not be empty");
}

#[test]
fn variables_are_evaluated_once_and_only_when_needed() {
    let mut scope = scope();
    let mut variables = Vec::new();
    for (name, source) in
        [("one", "1"), ("two", "variables.one + 1"), ("bad", "object.absent"), ("worse", "variables.bad")]
    {
        let program = Program::compile(source, &scope).unwrap();
        scope.add_variable(name, program.result().clone());
        variables.push((name.to_owned(), Ok(program)));
    }
    let (names, answers) = (names(), Answers::new());
    let machine = Machine::new(&names, &variables, &answers, BUDGET);
    let run = |source: &str| machine.run(&Program::compile(source, &scope).unwrap());
    assert_eq!(run("variables.two == 2"), Ok(Value::Bool(true)));
    let why = "composited variable \"worse\" fails to evaluate: composited variable \"bad\" fails to evaluate: no such key: absent";
    assert_eq!(run("variables.worse == 2"), Err(Stop::failed(why)));
    assert_eq!(run("true || variables.bad == 1"), Ok(Value::Bool(true)));
}

#[test]
fn work_is_bounded_by_a_budget() {
    let digits = "[0,1,2,3,4,5,6,7,8,9]";
    let mut nested = "true".to_owned();
    for level in 0..9 {
        nested = format!("{digits}.all(x{level}, {nested})");
    }
    let (names, answers) = (names(), Answers::new());
    let machine = Machine::new(&names, &[], &answers, BUDGET);
    assert_eq!(machine.run(&Program::compile(&nested, &scope()).unwrap()), Err(Stop::Costly));
    // Whatever is looked at is paid for, but for what is written there; a billion turns were asked for.
    let steps = machine.steps.get();
    assert!(steps <= 4 * super::eval::CALL_COST_MAX, "{steps}");
    assert_eq!(run_with("[1,2,3].all(x, x > 0)", &Answers::new(), 5), Err(Stop::OutOfBudget));
    // What could make much of little.
    let double =
        |times: usize| (0..times).fold("'aaaaaaaaaa'".to_owned(), |text, _| format!("[{text}].map(s, s + s)[0]"));
    assert_eq!(run(&double(40)), Err(Stop::Costly));
    let long = double(16);
    assert_eq!(run(&format!("{long}.replace('', {long}).size() > 0")), Err(Stop::Costly));
    assert!(matches!(run("'%.999999999f'.format([1.0]) != ''"), Err(Stop::Failed(_))));
    assert!(matches!(run(r"'a'.matches('(((x{1000}){1000}){1000})')"), Err(Stop::Failed(_))));
}

#[test]
fn an_expression_nested_too_deeply_is_refused_and_no_text_ends_the_process() {
    let deep = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(refused(&deep(500)).contains("expression recursion limit exceeded"), "{}", refused(&deep(500)));
    assert!(refused(&"!".repeat(50_000)).contains("expression recursion limit exceeded"));
    assert!(refused(&format!("1{}", "+1".repeat(5000))).contains("expression recursion limit exceeded"));
    assert!(refused(&format!("object{}", ".a".repeat(5000))).contains("expression recursion limit exceeded"));
    assert!(Program::compile(&format!("true{}", " && true".repeat(5000)), &scope()).is_ok());
    assert!(refused(&"a".repeat(100_001)).contains("expression code point size exceeds limit"));
    for garbage in [
        "",
        "'",
        "(",
        "{",
        "[1,",
        "a.",
        "1.e",
        "\\",
        "b'\\xZZ'",
        "@",
        "a ? b",
        "in",
        "..a",
        "{1:}",
        "r\"",
        "0x",
        "99999999999999999999",
        "ä",
    ] {
        assert!(Program::compile(garbage, &scope()).is_err(), "{garbage}");
    }
}
