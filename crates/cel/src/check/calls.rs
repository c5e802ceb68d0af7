//! Calls: which function, and whether it takes such arguments.
use super::{Checked, Checker, broken, validate};
use crate::cost::{self, CallCost};
use crate::library::{self, Function};
use crate::node::{Access, Node};
use crate::syntax::{Expr, Id, Kind, Literal};
use crate::types::Type;
use crate::value::{Pattern, Value};
use crate::work::Work;
use api::regexp::Regexp;
use std::sync::Arc;

/// Functions whose call on a constant is a constant.
const CONVERSIONS: &[&str] =
    &["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Functions whose cost is that of one of their overloads: if it is not known which, it is one.
const BY_OVERLOAD: &[&str] = &[
    "_+_",
    "_<_",
    "_<=_",
    "_>_",
    "_>=_",
    "@in",
    "string",
    "bytes",
    "sort",
    "@sortByAssociatedKeys",
    "flatten",
    "reverse",
];

impl Checker<'_> {
    pub(super) fn call(
        &mut self,
        id: Id,
        name: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Checked {
        if name == "_?._" {
            return self.optional_select(id, args);
        }
        let mut nodes = Vec::with_capacity(args.len() + 1);
        let mut types = Vec::with_capacity(args.len() + 1);
        let plain = name.strip_prefix('.').unwrap_or(name);
        let format = u32::from(plain == "format");
        self.in_format += format;
        for arg in args {
            let (node, ty) = self.expr(arg);
            nodes.push(node);
            types.push(ty);
        }
        self.in_format -= format;
        let list = std::mem::take(&mut self.last_list);
        if matches!(name, "_&&_" | "_||_") {
            return self.logic(name, args, nodes, &types);
        }
        let Some(target) = target else {
            let Some(function) = library::find(plain) else { return self.undeclared(id, name) };
            validate::call(self, plain, None, args);
            return self.resolve_call(id, function, false, nodes, &types);
        };
        // `a.b.c(x)` may be the function `a.b.c`, or `c` of `a.b`.
        if let Some(prefix) = qualified_name(target)
            && let Some(function) = library::find(&format!("{prefix}.{plain}"))
        {
            return self.resolve_call(id, function, false, nodes, &types);
        }
        self.in_format += format;
        let (node, ty) = self.expr(target);
        self.in_format -= format;
        if format == 1 {
            self.format_later(id, target, args, list);
        }
        nodes.insert(0, node);
        types.insert(0, ty);
        let Some(function) = library::find(plain) else { return self.undeclared(id, name) };
        validate::call(self, plain, Some(target), args);
        self.resolve_call(id, function, true, nodes, &types)
    }

    /// A literal format of literal arguments is looked at when their types are known.
    fn format_later(&mut self, id: Id, target: &Expr, args: &[Expr], types: Vec<(Id, Type)>) {
        let Kind::Literal(Literal::String(pattern)) = &target.kind else { return };
        let [Expr { kind: Kind::List(_), .. }] = args else { return };
        self.later.push(validate::Later::Format { id, pattern: pattern.clone(), args: types });
    }

    fn optional_select(&mut self, id: Id, args: &[Expr]) -> Checked {
        let [operand, field] = args else { return broken() };
        let Kind::Literal(Literal::String(field)) = &field.kind else { return broken() };
        let (node, ty) = self.field(id, operand, field, Access::Optional);
        (node, self.mapping.substitute(&ty, false))
    }

    fn logic(&mut self, name: &str, args: &[Expr], nodes: Vec<Node>, types: &[Type]) -> Checked {
        let mut fine = true;
        for (arg, ty) in args.iter().zip(types) {
            if !self.fits(ty, &Type::Bool) {
                let ty = self.mapping.substitute(ty, false);
                self.mismatch(arg.id, &Type::Bool, &ty);
                fine = false;
            }
        }
        let node = if name == "_&&_" { Node::And(nodes) } else { Node::Or(nodes) };
        (node, if fine { Type::Bool } else { Type::Error })
    }

    fn resolve_call(
        &mut self,
        id: Id,
        function: &'static Function,
        method: bool,
        nodes: Vec<Node>,
        types: &[Type],
    ) -> Checked {
        let mut result: Option<Type> = None;
        let mut matching = 0;
        for overload in function.overloads.iter().filter(|overload| overload.method == method) {
            let mut wanted = overload.arguments.clone();
            wanted.push(overload.result.clone());
            let mut wanted = self.mapping.instantiate(&wanted);
            let Some(returned) = wanted.pop() else { continue };
            if !self.mapping.assignable(types, &wanted) {
                continue;
            }
            matching += 1;
            if self.records {
                self.overloads.entry(id).or_default().push(overload);
            }
            let returned = self.mapping.substitute(&returned, false);
            result = Some(match result {
                None => returned,
                Some(before) if before == Type::Dyn || before == returned => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let types: Vec<Type> =
                types.iter().map(|ty| self.mapping.substitute(ty, true)).collect();
            let shown = signature(&types, method);
            let name = function.name;
            self.issue(id, format!("found no matching overload for '{name}' applied to '{shown}'"));
            return broken();
        };
        let mut node = self.planned(function, nodes);
        if let Node::Call { cost, .. } = &mut node
            && matching > 1
            && BY_OVERLOAD.contains(&function.name)
        {
            *cost = Some(cost::one);
        }
        (node, result)
    }

    /// The node of a call, or of what stands for it.
    fn planned(&mut self, function: &'static Function, mut args: Vec<Node>) -> Node {
        let boxed = |args: &mut Vec<Node>| Box::new(args.remove(0));
        match (function.name, args.len()) {
            ("_?_:_", 3) => match <[Node; 3]>::try_from(args) {
                Ok(args) => Node::Conditional(Box::new(args)),
                Err(_) => Node::Constant(Value::Null),
            },
            ("@not_strictly_false", 1) => Node::NotStrictlyFalse(boxed(&mut args)),
            ("_[_]", 2) => Node::Index {
                operand: boxed(&mut args),
                index: boxed(&mut args),
                access: Access::Get,
            },
            ("_[?_]", 2) => Node::Index {
                operand: boxed(&mut args),
                index: boxed(&mut args),
                access: Access::Optional,
            },
            ("or" | "orValue", 2) => Node::OrElse {
                target: boxed(&mut args),
                other: boxed(&mut args),
                value: function.name == "orValue",
            },
            ("cel.@mapInsert", _) => match args.remove(0) {
                Node::Local(place) => Node::Insert { place, entry: args },
                _ => Node::Constant(Value::Null),
            },
            ("_+_", 2) if self.appends(&args) => self.push(args),
            ("@in", 2) => self.membership(function, args),
            ("matches" | "find" | "findAll", _) => {
                if let Some(pattern) = args.get(1).and_then(Node::constant).and_then(compiled) {
                    match pattern {
                        Ok(pattern) => args[1] = Node::Constant(Value::Pattern(pattern)),
                        Err(fault) => {
                            self.constant_fault.get_or_insert(fault);
                        }
                    }
                }
                Node::call(function, args)
            }
            (name, 1) if CONVERSIONS.contains(&name) => self.conversion(function, args),
            _ => Node::call(function, args),
        }
    }

    /// Whether it is `accumulator + [x]`, which can be done in place.
    fn appends(&self, args: &[Node]) -> bool {
        let accumulator = match args[0] {
            Node::Local(place) => self.scope.get(place).is_some_and(|(name, _)| name == "@result"),
            _ => false,
        };
        accumulator
            && match &args[1] {
                Node::List(items) => items.iter().all(|(_, optional)| !optional),
                Node::Constant(Value::List(_)) => true,
                _ => false,
            }
    }

    fn push(&mut self, mut args: Vec<Node>) -> Node {
        let (list, accumulator) = (args.pop(), args.pop());
        let Some(Node::Local(place)) = accumulator else { return Node::Constant(Value::Null) };
        let values = match list {
            Some(Node::List(items)) => items.into_iter().map(|(node, _)| node).collect(),
            Some(Node::Constant(Value::List(list))) => list.iter().map(Node::Constant).collect(),
            _ => Vec::new(),
        };
        Node::Push { place, values }
    }

    /// Whether a list is constant and of simple values is known now.
    fn membership(&mut self, function: &'static Function, args: Vec<Node>) -> Node {
        let mut cost = None;
        if let Some(Value::List(list)) = args[1].constant() {
            if list.is_empty() {
                return Node::Constant(Value::Bool(false));
            }
            let simple = list.iter().all(|item| {
                matches!(
                    item,
                    Value::Bool(_)
                        | Value::Int(_)
                        | Value::Uint(_)
                        | Value::Double(_)
                        | Value::String(_)
                        | Value::Null
                )
            });
            cost = simple.then_some(cost::none as CallCost);
        }
        Node::Call { function, args, cost }
    }

    fn conversion(&mut self, function: &'static Function, args: Vec<Node>) -> Node {
        let Some(constant) = args[0].constant() else {
            return Node::call(function, args);
        };
        match function.run(&mut Work::default(), std::slice::from_ref(constant)).0 {
            Ok(value) => Node::Constant(value),
            Err(error) => {
                self.constant_fault.get_or_insert(error.to_string());
                Node::Constant(Value::Null)
            }
        }
    }
}

/// A constant pattern, or what is wrong with it.
fn compiled(value: &Value<'static>) -> Option<Result<Arc<Pattern>, String>> {
    let text = value.as_str()?;
    let regexp = Regexp::compile(text).map_err(|error| error.to_string());
    Some(regexp.map(|regexp| Arc::new(Pattern { text: text.into(), regexp })))
}

fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Ident(name) => Some(name.strip_prefix('.').unwrap_or(name).to_owned()),
        Kind::Select { operand, field, test: false } => {
            Some(format!("{}.{field}", qualified_name(operand)?))
        }
        _ => None,
    }
}

/// The arguments' types as cel-go shows them: `(int, string)`, `string.(int)`.
fn signature(types: &[Type], method: bool) -> String {
    let shown = |types: &[Type]| {
        let names: Vec<String> = types.iter().map(Type::to_string).collect();
        names.join(", ")
    };
    match types {
        [target, rest @ ..] if method => format!("{target}.({})", shown(rest)),
        types => format!("({})", shown(types)),
    }
}
