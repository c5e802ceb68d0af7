//! What shells are told.
use crate::kuberc::Preferred;
use crate::session::tests::{told_words, world};
use api::kinds::Scope;
use client::ApiResource;
use client::testing::World;
use serde_json::{Value, json};

fn resource(plural: &str, kind: &str, scope: Scope) -> ApiResource {
    ApiResource::custom("", "v1", plural, kind, scope)
}

/// Pods, services and namespaces, and a deployment with a pod.
fn busy() -> World {
    let world = world();
    let put = |of: &ApiResource, version: &str, kind: &str, name: &str, rest: Value| {
        let mut object = json!({ "apiVersion": version, "kind": kind,
            "metadata": { "name": name, "namespace": "default", "labels": { "app": name } } });
        for (field, value) in rest.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        world.put_tree(of, object);
    };
    let pods = resource("pods", "Pod", Scope::Namespaced);
    let containers = json!({ "spec": { "initContainers": [{ "name": "first" }], "nodeName": "n",
        "containers": [{ "name": "web", "ports": [{ "containerPort": 80 }, { "containerPort": 443 }] },
            { "name": "log" }] }, "status": { "phase": "Running" } });
    put(&pods, "v1", "Pod", "web-1", containers.clone());
    put(&pods, "v1", "Pod", "web-2", containers.clone());
    put(&pods, "v1", "Pod", "db", containers);
    let services = resource("services", "Service", Scope::Namespaced);
    let ports = json!({ "spec": { "ports": [{ "port": 8080 }], "selector": { "app": "db" } } });
    put(&services, "v1", "Service", "db", ports);
    let namespaces = resource("namespaces", "Namespace", Scope::Cluster);
    for name in ["default", "kube-system"] {
        world.put_tree(
            &namespaces,
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        );
    }
    world
}

#[tokio::test]
async fn flags_may_come_before_the_question() {
    let words = ["-n", "default", "__completeNoDesc", "get", "pods", "w"].map(str::to_owned);
    let text = told_words(&busy(), &Preferred::nothing(&words)).await;
    assert!(text.starts_with("web-1\nweb-2\n:4\n"), "{text}");
}

/// A line with `_` for a word that is not begun; candidates are between commas.
async fn asked(world: &World, command: &str, line: &str) -> String {
    let words = line.split_whitespace().map(|word| word.replace('_', ""));
    let words: Vec<String> = std::iter::once(command.to_owned()).chain(words).collect();
    let text = told_words(world, &Preferred::nothing(&words)).await;
    let (answer, _) = text.split_once("Completion ended").unwrap_or((&text, ""));
    answer.trim_end().replace('\n', ",")
}

async fn check(lines: &[(&str, &str)]) {
    let world = busy();
    for (line, expected) in lines {
        assert_eq!(asked(&world, "__completeNoDesc", line).await, *expected, "{line}");
    }
}

#[tokio::test]
async fn types_and_names_are_offered() {
    check(&[
        ("get po", "pods,pods.example.com,:4"),
        ("get nodes,po", "nodes,pods,nodes,pods.example.com,:4"),
        ("get pods _", "db,web-1,web-2,:4"),
        ("get pods web-1 w", "web-2,:4"),
        ("get pod/w", "pod/web-1,pod/web-2,:4"),
        (
            "get pod/web-1 _",
            "configmaps/,namespaces/,nodes/,pods/,secrets/,services/,deployments.apps/,pods.example.com/,:6",
        ),
        ("get pod/web-1 pod/web", "pod/web-2,:4"),
        ("-n x get pods _", ":4"),
        ("get pods -n x _", ":4"),
        ("delete -A pods _", "db,web-1,web-2,:4"),
        ("get bogus _", ":4"),
        ("describe svc _", "db,:4"),
        ("rollout status d", "deployment,daemonset,:4"),
        ("rollout status deployment/x _", ":4"),
        ("rollout pause deployment/x _", "deployment/,:6"),
        ("drain _", ":4"),
        ("explain _", ":0"),
    ])
    .await;
}

#[tokio::test]
async fn pods_their_containers_and_ports_are_offered() {
    check(&[
        ("logs w", "web-1,web-2,:4"),
        ("logs d", "db,daemonsets/,deployments/,:4"),
        ("logs dep", "deployments/,:6"),
        ("logs svc/", "svc/db,:4"),
        ("logs web-1 _", "first,web,log,:4"),
        ("logs svc/db w", "web,:4"),
        ("exec web-1 -c _", "first,web,log,:4"),
        ("exec web-1 -c=l", "log,:4"),
        ("exec -c _", ":4"),
        ("exec web-1 -- sh -c _", ":4"),
        ("exec web-1 _", ":4"),
        ("port-forward web-1 _", "80:80,443:443,:4"),
        ("port-forward web-1 80", "80:80,80:443,:4"),
        ("port-forward web-1 90:4", "90:443,:4"),
        ("port-forward svc/db _", "8080:8080,:4"),
        ("cp _", "default/,kube-system/,db:,web-1:,web-2:,./,/,:2"),
        ("cp default/w", "default/web-1:,default/web-2:,:2"),
        ("cp ./x", ":2"),
        ("cp a _", ":2"),
    ])
    .await;
}

#[tokio::test]
async fn commands_and_flags_are_offered() {
    check(&[
        ("c", "certificate,cluster-info,completion,config,cordon,cp,create,:4"),
        ("config u", "unset,use-context,:4"),
        ("rollout s", "status,:4"),
        ("get --wat", "--watch,--watch-only,:4"),
        ("get -w --wat", "--watch-only,:4"),
        ("get --names", "--namespace,:4"),
        ("get -f a --filen", "--filename,:4"),
        ("get --output wi", "wide,:4"),
        ("get -ojson --outp", "--output-watch-events,:4"),
        ("get -o=js", "json,jsonpath,jsonpath-as-json,jsonpath-file,:4"),
        ("-n ku", "kube-system,:4"),
        ("get --namespace=d", "default,:4"),
        ("apply -f _", "json,yaml,yml,:8"),
        ("apply _", "edit-last-applied,set-last-applied,view-last-applied,:4"),
        ("apply -f x _", ":0"),
        ("run x _", "--image,:0"),
        ("scale --", "--replicas,:4"),
        ("scale --replicas=1 --repl", ":4"),
        ("help rollout st", "status,:4"),
        ("completion _", "bash,fish,powershell,zsh,:4"),
        ("get --help _", ":4"),
        ("apply --applyse", ":4"),
    ])
    .await;
}

#[tokio::test]
async fn what_makes_no_sense_is_told_beside_the_answer() {
    check(&[
        ("bogus _", "[Debug] [Error] unable to find a command for arguments: [bogus],:0"),
        (
            "get --bogus=_",
            "[Debug] [Error] Subcommand 'get' does not support flag 'bogus',:0",
        ),
        (
            "get --bogus _",
            "[Debug] [Error] Error while parsing flags from args [--bogus]: unknown flag: --bogus,:0",
        ),
        (
            "get --bogus x _",
            "[Debug] [Error] Error while parsing flags from args [--bogus x]: unknown flag: --bogus,:0",
        ),
        (
            "get --chunk-size=x _",
            "[Debug] [Error] Error while parsing flags from args [--chunk-size=x]: invalid argument \"x\" for \
             \"--chunk-size\" flag: strconv.ParseInt: parsing \"x\": invalid syntax,:0",
        ),
    ])
    .await;
}

#[tokio::test]
async fn descriptions_stand_behind_a_tab() {
    let world = busy();
    assert_eq!(
        asked(&world, "__complete", "rollout st").await,
        "status\tShow the status of the rollout,:4"
    );
    assert_eq!(
        asked(&world, "__complete", "get --watch-o").await,
        "--watch-only\tShow changes alone.,:4"
    );
}

#[tokio::test]
async fn names_that_could_harm_a_terminal_are_not_offered() {
    let world = world();
    let pods = resource("pods", "Pod", Scope::Namespaced);
    for name in ["good", "bad\u{1b}[2J", "two\nlines", "a b"] {
        world.put_tree(
            &pods,
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" } }),
        );
    }
    assert_eq!(asked(&world, "__completeNoDesc", "get pods _").await, "good,:4");
}
