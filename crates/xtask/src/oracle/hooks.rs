//! A webhook that both servers ask, and that says what the object tells it to: what a server makes of a lie,
//! of garbage or of a patch without sense is compared like anything else.
//!
//! ```text
//!  /admit    annotation `answer`: {"code": 200, "patch": […], "response": {…}, "text": "…"}
//!  /convert  annotation `answer`: {"object": {…}, "times": 2, "response": {…}, "text": "…"}
//! ```
//! `patch` is sent as a JSON Patch (a text as it is), `object` is merged into each converted object,
//! `response` into the response, and `text` is said in place of it all.
use anyhow::Context;
use api::patch::merge;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Where the webhook listens, as steps name it.
pub struct Hooks {
    address: String,
    bundle: String,
}

impl Hooks {
    pub async fn start() -> anyhow::Result<Hooks> {
        let key = rcgen::KeyPair::generate()?;
        let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()])?;
        let certificate = params.self_signed(&key)?;
        let secret = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], secret)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let server = hyper::server::conn::http1::Builder::new();
                    // A server that hangs up is done with us.
                    let _ = server.serve_connection(TokioIo::new(stream), service_fn(serve)).await;
                });
            }
        });
        Ok(Hooks { address, bundle: STANDARD.encode(certificate.pem()) })
    }

    /// A step with the address and the authority of this webhook in it.
    pub fn put_into(&self, line: &str) -> String {
        line.replace("HOOK_ADDRESS", &self.address).replace("HOOK_BUNDLE", &self.bundle)
    }
}

async fn serve(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let converts = request.uri().path() == "/convert";
    let said = async {
        let body = request.into_body().collect().await?.to_bytes();
        let review: Value = serde_json::from_slice(&body)?;
        if converts { converted(review) } else { admitted(review) }
    };
    let (code, text) = said.await.unwrap_or_else(|error: anyhow::Error| (500, error.to_string()));
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::IM_A_TEAPOT);
    let media = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, media);
    Ok(response)
}

/// What an object says of the answer.
fn told(object: &Value) -> anyhow::Result<Value> {
    match object["metadata"]["annotations"]["answer"].as_str() {
        Some(text) => serde_json::from_str(text).context("an answer is JSON"),
        None => Ok(json!({})),
    }
}

fn admitted(mut review: Value) -> anyhow::Result<(u16, String)> {
    let request = &review["request"];
    let [new, old] = [&request["object"], &request["oldObject"]];
    let told = told(if new.is_null() { old } else { new })?;
    let mut response = json!({ "uid": request["uid"], "allowed": true });
    if let Some(patch) = told.get("patch") {
        let text = patch.as_str().map_or_else(|| patch.to_string(), str::to_owned);
        response["patch"] = STANDARD.encode(text).into();
        response["patchType"] = "JSONPatch".into();
    }
    review["request"].take();
    said(review, response, &told)
}

fn converted(mut review: Value) -> anyhow::Result<(u16, String)> {
    let request = &review["request"];
    let objects = request["objects"].as_array().context("there are objects")?;
    let told = told(objects.first().unwrap_or(&Value::Null))?;
    let times = told["times"].as_u64().unwrap_or(1);
    let mut converted = Vec::new();
    for object in objects {
        let mut object = object.clone();
        object["apiVersion"] = request["desiredAPIVersion"].clone();
        if let Some(lie) = told.get("object") {
            merge::apply(&mut object, lie).map_err(|error| anyhow::anyhow!("{error}"))?;
        }
        (0..times).for_each(|_| converted.push(object.clone()));
    }
    let response = json!({ "uid": request["uid"], "convertedObjects": converted,
        "result": { "status": "Success" } });
    review["request"].take();
    said(review, response, &told)
}

fn said(mut review: Value, mut response: Value, told: &Value) -> anyhow::Result<(u16, String)> {
    if let Some(change) = told.get("response") {
        merge::apply(&mut response, change).map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    review["response"] = response;
    if let Some(change) = told.get("review") {
        merge::apply(&mut review, change).map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    let code = told["code"].as_u64().and_then(|code| code.try_into().ok()).unwrap_or(200);
    let text = told["text"].as_str().map_or_else(|| review.to_string(), str::to_owned);
    Ok((code, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_says_what_is_answered() {
        let answer = |answer: Value| json!({ "metadata": { "annotations": { "answer": answer.to_string() } } });
        let object = answer(json!({ "patch": [1], "response": { "uid": "other" }, "code": 201 }));
        let review = json!({ "request": { "uid": "u", "object": object, "oldObject": null } });
        let (code, text) = admitted(review).expect("an answer");
        let said: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((code, &said["request"]), (201, &Value::Null));
        let expected =
            json!({ "uid": "other", "allowed": true, "patch": "WzFd", "patchType": "JSONPatch" });
        assert_eq!(said["response"], expected);
        let lie = answer(json!({ "object": { "kind": "B" }, "times": 2 }));
        let review = json!({ "request": { "uid": "u", "desiredAPIVersion": "e.io/v2",
            "objects": [lie] } });
        let (_, text) = converted(review).expect("an answer");
        let said: Value = serde_json::from_str(&text).expect("JSON");
        let objects = said["response"]["convertedObjects"].as_array().expect("objects");
        assert_eq!((objects.len(), &objects[1]["kind"]), (2, &json!("B")));
        assert_eq!(objects[0]["apiVersion"], "e.io/v2");
    }
}
