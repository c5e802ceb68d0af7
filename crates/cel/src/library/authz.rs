//! Asking whether the user may do something else.
use super::{Outcome, Row, row};
use crate::authorizer::{Authorization, Check};
use crate::cost;
use crate::value::Value;
use crate::work::{Error, Work};
use std::sync::Arc;

pub static ROWS: &[Row] = &[
    row("path", &["Authorizer.(string) -> PathCheck"], path, cost::one),
    row("group", &["Authorizer.(string) -> GroupCheck"], group, cost::one),
    row(
        "serviceAccount",
        &["Authorizer.(string, string) -> Authorizer"],
        service_account,
        cost::one,
    ),
    row("resource", &["GroupCheck.(string) -> ResourceCheck"], resource, cost::one),
    row(
        "subresource",
        &["ResourceCheck.(string) -> ResourceCheck"],
        |_, args| narrowed(args, |check, text| check.subresource = text),
        cost::one,
    ),
    row(
        "namespace",
        &["ResourceCheck.(string) -> ResourceCheck"],
        |_, args| narrowed(args, |check, text| check.namespace = text),
        cost::one,
    ),
    row(
        "name",
        &["ResourceCheck.(string) -> ResourceCheck"],
        |_, args| narrowed(args, |check, text| check.name = text),
        cost::one,
    ),
    row(
        "fieldSelector",
        &["ResourceCheck.(string) -> ResourceCheck"],
        |_, args| narrowed(args, |check, text| check.field_selector = Some(text)),
        cost::selector,
    ),
    row(
        "labelSelector",
        &["ResourceCheck.(string) -> ResourceCheck"],
        |_, args| narrowed(args, |check, text| check.label_selector = Some(text)),
        cost::selector,
    ),
    row(
        "check",
        &["PathCheck.(string) -> Decision", "ResourceCheck.(string) -> Decision"],
        check,
        cost::authorization,
    ),
    row("allowed", &["Decision.() -> bool"], allowed, cost::one),
    row("reason", &["Decision.() -> string"], reason, cost::one),
    row("errored", &["Decision.() -> bool"], errored, cost::one),
    row("error", &["Decision.() -> string"], error, cost::one),
];

fn pair<'v, 'a>(args: &'v [Value<'a>]) -> Result<(&'v Authorization<'a>, &'v str), Error> {
    match args {
        [Value::Authorization(authorization), text] => {
            Ok((authorization, text.as_str().ok_or(Error::NoOverload)?))
        }
        _ => Err(Error::NoOverload),
    }
}

fn made(authorization: Authorization<'_>) -> Outcome<'_> {
    Ok(Value::Authorization(Arc::new(authorization)))
}

fn path<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (Authorization::Authorizer(asked), path) = pair(args)? else {
        return Err(Error::NoOverload);
    };
    made(Authorization::Path(asked.clone(), path.to_owned()))
}

fn group<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (Authorization::Authorizer(asked), group) = pair(args)? else {
        return Err(Error::NoOverload);
    };
    made(Authorization::Group(asked.clone(), group.to_owned()))
}

fn service_account<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Authorization(authorization), namespace, name] = args else {
        return Err(Error::NoOverload);
    };
    let Authorization::Authorizer(asked) = &**authorization else { return Err(Error::NoOverload) };
    let (Some(namespace), Some(name)) = (namespace.as_str(), name.as_str()) else {
        return Err(Error::NoOverload);
    };
    let name_faults = api::names::name_is_dns_subdomain(name, false);
    if !name_faults.is_empty() {
        return Err(Error::said("Invalid service account name"));
    }
    let namespace_faults = api::names::name_is_dns_label(namespace, false);
    if !namespace_faults.is_empty() {
        return Err(Error::said("Invalid service account namespace"));
    }
    let mut asked = asked.clone();
    asked.service_account = Some((namespace.to_owned(), name.to_owned()));
    made(Authorization::Authorizer(asked))
}

fn resource<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (Authorization::Group(asked, group), resource) = pair(args)? else {
        return Err(Error::NoOverload);
    };
    let check = Check { group: group.clone(), resource: resource.to_owned(), ..Check::default() };
    made(Authorization::Resource(asked.clone(), check))
}

fn narrowed<'a>(args: &[Value<'a>], set: fn(&mut Check, String)) -> Outcome<'a> {
    let (Authorization::Resource(asked, check), text) = pair(args)? else {
        return Err(Error::NoOverload);
    };
    let mut check = check.clone();
    set(&mut check, text.to_owned());
    made(Authorization::Resource(asked.clone(), check))
}

fn check<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (asked, check) = match pair(args)? {
        (Authorization::Path(asked, path), verb) => {
            let path = Some(path.clone());
            (asked, Check { path, verb: verb.to_owned(), ..Check::default() })
        }
        (Authorization::Resource(asked, check), verb) => {
            (asked, Check { verb: verb.to_owned(), ..check.clone() })
        }
        _ => return Err(Error::NoOverload),
    };
    made(Authorization::Decision(asked.decide(check)))
}

fn decision<'v>(args: &'v [Value<'_>]) -> Result<&'v crate::authorizer::Decision, Error> {
    match args {
        [Value::Authorization(authorization)] => match &**authorization {
            Authorization::Decision(decision) => Ok(decision),
            _ => Err(Error::NoOverload),
        },
        _ => Err(Error::NoOverload),
    }
}

fn allowed<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(decision(args)?.allowed))
}

fn reason<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::text(decision(args)?.reason.as_str()))
}

fn errored<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(decision(args)?.error.is_some()))
}

fn error<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::text(decision(args)?.error.as_deref().unwrap_or_default()))
}
