//! One bound, and whether a request and a limit keep it.
use crate::admission::resource_list::ResourceList;
use api::quantity::Quantity;

/// Beyond this a number of thousandths does not fit.
const MAX_MILLI_VALUE: i64 = i64::MAX / 1000;

/// What is asked for, held against one bound at a time.
pub struct Judge<'a> {
    pub what: &'static str,
    pub requests: &'a ResourceList,
    pub limits: &'a ResourceList,
}

impl Judge<'_> {
    pub fn least(&self, name: &str, bound: &Quantity) -> Option<String> {
        let (request, limit) = (self.requests.get(name), self.limits.get(name));
        let (asked, limited, least) = numbers(request, limit, bound);
        let fault = match (request, limit) {
            (None, _) => ".  No request is specified".into(),
            (Some(request), _) if asked < least => format!(", but request is {request}"),
            (_, Some(limit)) if limited < least => format!(", but limit is {limit}"),
            _ => return None,
        };
        Some(format!("minimum {name} usage per {} is {bound}{fault}", self.what))
    }

    pub fn most(&self, name: &str, bound: &Quantity) -> Option<String> {
        let (request, limit) = (self.requests.get(name), self.limits.get(name));
        let (asked, limited, most) = numbers(request, limit, bound);
        let fault = match (request, limit) {
            (_, None) => ".  No limit is specified".into(),
            (_, Some(limit)) if limited > most => format!(", but limit is {limit}"),
            (Some(request), _) if asked > most => format!(", but request is {request}"),
            _ => return None,
        };
        Some(format!("maximum {name} usage per {} is {bound}{fault}", self.what))
    }

    pub fn most_requested(&self, name: &str, bound: &Quantity) -> Option<String> {
        let request = self.requests.get(name);
        let (asked, _, most) = numbers(request, None, bound);
        let fault = match request {
            None => ".  No request is specified".into(),
            Some(request) if asked > most => format!(", but request is {request}"),
            _ => return None,
        };
        Some(format!("maximum {name} usage per {} is {bound}{fault}", self.what))
    }

    pub fn ratio(&self, name: &str, bound: &Quantity) -> Option<String> {
        let (request, limit) = (self.requests.get(name), self.limits.get(name));
        let (asked, limited, _) = numbers(request, limit, bound);
        // A ratio is shown and compared as a number of floating point, as upstream does.
        let (ratio, most) = (limited as f64 / asked as f64, bound.value());
        let fault = if request.is_none() || asked == 0 {
            "no request is specified or request is 0".into()
        } else if limit.is_none() || limited == 0 {
            "no limit is specified or limit is 0".into()
        } else if match most <= MAX_MILLI_VALUE {
            true => ratio * 1000.0 > bound.milli_value() as f64,
            false => ratio > most as f64,
        } {
            format!("provided ratio is {ratio:.6}")
        } else {
            return None;
        };
        let what = self.what;
        Some(format!("{name} max limit to request ratio per {what} is {bound}, but {fault}"))
    }
}

/// Request, limit and bound as integers: in thousandths if all of them fit.
fn numbers(
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
    bound: &Quantity,
) -> (i64, i64, i64) {
    let zero = Quantity::default();
    let all = [request.unwrap_or(&zero), limit.unwrap_or(&zero), bound];
    let [request, limit, bound] = match all.iter().all(|q| q.value() <= MAX_MILLI_VALUE) {
        true => all.map(Quantity::milli_value),
        false => all.map(Quantity::value),
    };
    (request, limit, bound)
}
