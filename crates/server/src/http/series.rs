//! How long requests take, by their route and their status; never by anything a caller chose.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use http::StatusCode;
use metrics::Histogram;

/// The series that were written to; there are no more than routes times statuses. Every request writes to one, and asking the
/// recorder for it by its labels costs more than the writing.
static KNOWN: LazyLock<RwLock<HashMap<String, HashMap<StatusCode, Histogram>>>> = LazyLock::new(RwLock::default);

/// A request that is being answered.
pub(crate) struct Measured {
    route: Option<MatchedPath>,
    begun: Instant,
}

impl Measured {
    pub(crate) fn begin(request: &Request) -> Self {
        Self { route: request.extensions().get::<MatchedPath>().cloned(), begun: Instant::now() }
    }

    /// Counts and times it.
    pub(crate) fn end(self, status: StatusCode) {
        let route = self.route.as_ref().map_or("unmatched", MatchedPath::as_str);
        series(route, status).record(self.begun.elapsed().as_secs_f64());
    }
}

fn series(route: &str, status: StatusCode) -> Histogram {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(series) = known.get(route).and_then(|of_route| of_route.get(&status)) {
        return series.clone();
    }
    drop(known);
    let (route, code) = (route.to_owned(), status.as_str().to_owned());
    let series = metrics::histogram!("hapax_http_request_duration_seconds", "route" => route.clone(), "code" => code);
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    known.entry(route).or_default().insert(status, series.clone());
    series
}
