//! Macros: calls that are rewritten before anything is checked.
use super::parser::{Broken, Parser};
use super::{Expr, Fold, Id, Item, Kind, Literal};

/// The accumulator of a fold; no expression can name it.
const ACCUMULATOR: &str = "@result";

/// A call as it stands, or what its macro makes of it.
pub fn expand(
    parser: &mut Parser,
    id: Id,
    name: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, Broken> {
    let offset = parser.positions[id as usize];
    let mut maker = Maker { parser, offset };
    match (name, target, args.len()) {
        ("has", None, 1) => maker.has(args),
        ("all" | "exists" | "exists_one", Some(range), 2 | 3) => {
            maker.quantifier(name, range, args)
        }
        ("existsOne", Some(range), 3) => maker.quantifier(name, range, args),
        ("map", Some(range), 2 | 3) => maker.map(range, args),
        ("filter", Some(range), 2) => maker.filter(range, args),
        ("transformList", Some(range), 3 | 4) => maker.transform_list(range, args),
        ("transformMap", Some(range), 3 | 4) => maker.transform_map(range, args, false),
        ("transformMapEntry", Some(range), 3 | 4) => maker.transform_map(range, args, true),
        ("sortBy", Some(range), 2) => maker.sort_by(range, args),
        ("optMap" | "optFlatMap", Some(target), 2) => maker.optional(name, target, args),
        (_, target, _) => {
            let target = target.map(Box::new);
            Ok(Expr::new(id, Kind::Call { function: name.to_owned(), target, args }))
        }
    }
}

/// So many nodes are copied.
const MOST_COPIED: usize = 32;

/// How many nodes there are, or more than [`MOST_COPIED`].
fn count(expr: &Expr) -> usize {
    let children: Vec<&Expr> = match &expr.kind {
        Kind::Literal(_) | Kind::Ident(_) => Vec::new(),
        Kind::Select { operand, .. } => vec![operand],
        Kind::Call { target, args, .. } => target.iter().map(|t| &**t).chain(args).collect(),
        Kind::List(items) => items.iter().map(|item| &item.value).collect(),
        Kind::Map(entries) => entries.iter().flat_map(|entry| [&entry.key, &entry.value]).collect(),
        Kind::Struct { fields, .. } => fields.iter().map(|field| &field.value).collect(),
        Kind::Fold(fold) => {
            vec![&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
        }
    };
    let mut total = 1;
    for child in children {
        if total > MOST_COPIED {
            break;
        }
        total += count(child);
    }
    total
}

struct Maker<'p> {
    parser: &'p mut Parser,
    /// Of the macro's call: all that is made is there.
    offset: u32,
}

impl Maker<'_> {
    fn node(&mut self, kind: Kind) -> Expr {
        Expr::new(self.parser.id(self.offset), kind)
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.node(Kind::Literal(literal))
    }

    fn bool(&mut self, value: bool) -> Expr {
        self.literal(Literal::Bool(value))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.node(Kind::Ident(name.to_owned()))
    }

    fn accumulated(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        let function = function.to_owned();
        self.node(Kind::Call { function, target: None, args })
    }

    fn list(&mut self, values: Vec<Expr>) -> Expr {
        let items = values.into_iter().map(|value| Item { value, optional: false }).collect();
        self.node(Kind::List(items))
    }

    fn has(&mut self, mut args: Vec<Expr>) -> Result<Expr, Broken> {
        match args.remove(0) {
            Expr { kind: Kind::Select { operand, field, test: false }, .. } => {
                Ok(self.node(Kind::Select { operand, field, test: true }))
            }
            other => {
                Err(self.parser.fault_at(other.id, "invalid argument to has() macro".to_owned()))
            }
        }
    }

    /// The name of an iteration variable.
    fn variable(&mut self, arg: &Expr, fault: &str) -> Result<String, Broken> {
        match &arg.kind {
            Kind::Ident(name) if name == "__result__" => Err(self
                .parser
                .fault_at(arg.id, "iteration variable overwrites accumulator variable".to_owned())),
            Kind::Ident(name) if !name.starts_with('.') => Ok(name.clone()),
            _ => Err(self.parser.fault_at(arg.id, fault.to_owned())),
        }
    }

    /// The variable of `map` and `filter`.
    fn element(&mut self, args: &mut Vec<Expr>) -> Result<String, Broken> {
        let arg = args.remove(0);
        self.variable(&arg, "argument is not an identifier")
    }

    /// One or two variables in front of the rest.
    fn variables(
        &mut self,
        args: &mut Vec<Expr>,
        two: bool,
    ) -> Result<(String, Option<String>), Broken> {
        let first_arg = args.remove(0);
        let fault = "argument must be a simple name";
        let first = self.variable(&first_arg, fault)?;
        if !two {
            return Ok((first, None));
        }
        let second_arg = args.remove(0);
        let second = self.variable(&second_arg, fault)?;
        if first == second {
            let message = format!("duplicate variable name: {first}");
            return Err(self.parser.fault_at(second_arg.id, message));
        }
        Ok((first, Some(second)))
    }

    fn fold(
        &mut self,
        range: Expr,
        (variable, second): (String, Option<String>),
        [init, condition, step, result]: [Expr; 4],
    ) -> Result<Expr, Broken> {
        let accumulator = ACCUMULATOR.to_owned();
        let fold = Fold { range, variable, second, accumulator, init, condition, step, result };
        Ok(self.node(Kind::Fold(Box::new(fold))))
    }

    fn quantifier(&mut self, name: &str, range: Expr, mut args: Vec<Expr>) -> Result<Expr, Broken> {
        let two = args.len() == 3;
        let variables = self.variables(&mut args, two)?;
        let predicate = args.remove(0);
        let accumulated = self.accumulated();
        let parts = match name {
            "all" => {
                let init = self.bool(true);
                let condition = self.call("@not_strictly_false", vec![accumulated]);
                let accumulated = self.accumulated();
                let step = self.call("_&&_", vec![accumulated, predicate]);
                [init, condition, step, self.accumulated()]
            }
            "exists" => {
                let init = self.bool(false);
                let not = self.call("!_", vec![accumulated]);
                let condition = self.call("@not_strictly_false", vec![not]);
                let accumulated = self.accumulated();
                let step = self.call("_||_", vec![accumulated, predicate]);
                [init, condition, step, self.accumulated()]
            }
            _ => {
                let init = self.literal(Literal::Int(0));
                let condition = self.bool(true);
                let one = self.literal(Literal::Int(1));
                let more = self.call("_+_", vec![accumulated, one]);
                let same = self.accumulated();
                let step = self.call("_?_:_", vec![predicate, more, same]);
                let (accumulated, one) = (self.accumulated(), self.literal(Literal::Int(1)));
                let result = self.call("_==_", vec![accumulated, one]);
                [init, condition, step, result]
            }
        };
        self.fold(range, variables, parts)
    }

    /// Adds `value` to the accumulated list, if `filter` says so.
    fn append(&mut self, value: Expr, filter: Option<Expr>) -> Expr {
        let (accumulated, list) = (self.accumulated(), self.list(vec![value]));
        let step = self.call("_+_", vec![accumulated, list]);
        self.if_wanted(step, filter)
    }

    fn if_wanted(&mut self, step: Expr, filter: Option<Expr>) -> Expr {
        match filter {
            None => step,
            Some(filter) => {
                let same = self.accumulated();
                self.call("_?_:_", vec![filter, step, same])
            }
        }
    }

    fn collect(
        &mut self,
        range: Expr,
        variables: (String, Option<String>),
        init: Expr,
        step: Expr,
    ) -> Result<Expr, Broken> {
        let parts = [init, self.bool(true), step, self.accumulated()];
        self.fold(range, variables, parts)
    }

    fn map(&mut self, range: Expr, mut args: Vec<Expr>) -> Result<Expr, Broken> {
        let variables = (self.element(&mut args)?, None);
        let filter = (args.len() == 2).then(|| args.remove(0));
        let step = self.append(args.remove(0), filter);
        let init = self.list(Vec::new());
        self.collect(range, variables, init, step)
    }

    fn filter(&mut self, range: Expr, mut args: Vec<Expr>) -> Result<Expr, Broken> {
        let variables = (self.element(&mut args)?, None);
        let element = self.ident(&variables.0);
        let step = self.append(element, Some(args.remove(0)));
        let init = self.list(Vec::new());
        self.collect(range, variables, init, step)
    }

    fn transform_list(&mut self, range: Expr, mut args: Vec<Expr>) -> Result<Expr, Broken> {
        let variables = self.variables(&mut args, true)?;
        let filter = (args.len() == 2).then(|| args.remove(0));
        let step = self.append(args.remove(0), filter);
        let init = self.list(Vec::new());
        self.collect(range, variables, init, step)
    }

    fn transform_map(
        &mut self,
        range: Expr,
        mut args: Vec<Expr>,
        entries: bool,
    ) -> Result<Expr, Broken> {
        let variables = self.variables(&mut args, true)?;
        let filter = (args.len() == 2).then(|| args.remove(0));
        let mut insert = vec![self.accumulated()];
        if !entries {
            insert.push(self.ident(&variables.0));
        }
        insert.push(args.remove(0));
        let step = self.call("cel.@mapInsert", insert);
        let step = self.if_wanted(step, filter);
        let init = self.node(Kind::Map(Vec::new()));
        self.collect(range, variables, init, step)
    }

    /// A fold over nothing, whose accumulator is a name for `value` in `result`.
    fn bind(&mut self, name: &str, value: Expr, result: Expr) -> Expr {
        let (range, condition) = (self.list(Vec::new()), self.bool(false));
        let step = self.ident(name);
        let (variable, second) = ("#unused".to_owned(), None);
        let accumulator = name.to_owned();
        let fold =
            Fold { range, variable, second, accumulator, init: value, condition, step, result };
        self.node(Kind::Fold(Box::new(fold)))
    }

    fn sort_by(&mut self, range: Expr, args: Vec<Expr>) -> Result<Expr, Broken> {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(range.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Struct { .. }) {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or \
                           select expression";
            return Err(self.parser.fault_at(range.id, message.to_owned()));
        }
        let input = self.ident(INPUT);
        let keys = self.map(input, args)?;
        let target = Some(Box::new(self.ident(INPUT)));
        let function = "@sortByAssociatedKeys".to_owned();
        let sorted = self.node(Kind::Call { function, target, args: vec![keys] });
        Ok(self.bind(INPUT, range, sorted))
    }

    /// `target.optMap(v, e)`: `target.hasValue() ? optional.of(e with v) : optional.none()`.
    fn optional(&mut self, name: &str, target: Expr, mut args: Vec<Expr>) -> Result<Expr, Broken> {
        const TARGET: &str = "@target";
        let variable = match &args[0].kind {
            Kind::Ident(variable) => variable.clone(),
            _ => {
                let message = format!("{name}() variable name must be a simple identifier");
                return Err(self.parser.fault_at(args[0].id, message));
            }
        };
        let mapped = args.remove(1);
        // cel-go writes the target twice; what is long is given a name instead, or each optMap of
        // a chain would double the whole.
        let copied = count(&target) <= MOST_COPIED;
        let again = |maker: &mut Self| {
            if copied { target.clone() } else { maker.ident(TARGET) }
        };
        let held = Some(Box::new(again(self)));
        let value = Some(Box::new(again(self)));
        let method = |function: &str, target| Kind::Call {
            function: function.to_owned(),
            target,
            args: Vec::new(),
        };
        let has_value = self.node(method("hasValue", held));
        let value = self.node(method("value", value));
        let bound = self.bind(&variable, value, mapped);
        let some = if name == "optMap" { self.call("optional.of", vec![bound]) } else { bound };
        let none = self.call("optional.none", Vec::new());
        let chosen = self.call("_?_:_", vec![has_value, some, none]);
        Ok(if copied { chosen } else { self.bind(TARGET, target, chosen) })
    }
}
