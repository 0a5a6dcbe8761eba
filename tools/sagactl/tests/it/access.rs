//! Shell: every route of a service has a rule, and every rule belongs to a route.

use std::collections::BTreeSet;
use std::path::Path;

use contract::access::ACCESS;
use syn::visit::{Visit, visit_expr_method_call, visit_item_fn};
use syn::{Expr, ExprCall, ExprLit, ExprMethodCall, ItemFn, Lit};

use crate::system::workspace;

/// Functions that declare the methods of a route.
const METHODS: [&str; 6] = ["get", "post", "put", "delete", "patch", "head"];

/// Routes, as `GET /path`, and declarations that cannot be read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Routes {
    found: BTreeSet<(String, String)>,
    unclear: Vec<String>,
}

/// Pages that everybody may read. They have no state of the service, and so no data.
const PAGES: &str = "console.rs";

/// Routes of every server, which need no token.
const OF_ENGINE: [&str; 3] = ["/livez", "/readyz", "/metrics"];

#[test]
fn every_route_has_a_rule_and_every_rule_a_route() {
    let mut routes = Routes::default();
    for folder in ["shared/engine/src", "services"] {
        routes.read(&workspace().join(folder));
    }
    assert!(routes.unclear.is_empty(), "whether these need a role cannot be read: {:#?}", routes.unclear);
    let own = routes.found.into_iter().filter(|(_, path)| !OF_ENGINE.contains(&path.as_str()));
    let found: BTreeSet<_> = own.collect();
    let ruled: BTreeSet<_> =
        ACCESS.rules.iter().map(|rule| (rule.method.to_owned(), rule.path.to_owned())).collect();
    let without: Vec<_> = found.difference(&ruled).collect();
    assert!(without.is_empty(), "these need a line in shared/contract/src/access.rs: {without:#?}");
    let stale: Vec<_> = ruled.difference(&found).collect();
    assert!(stale.is_empty(), "these lines of shared/contract/src/access.rs are of no route: {stale:#?}");
}

#[test]
fn pages_have_no_access_to_data() {
    let text =
        std::fs::read_to_string(workspace().join("services/admin/src").join(PAGES)).expect("the pages");
    for word in ["State", "AdminApp", "store", "Extension"] {
        assert!(!text.contains(word), "{PAGES} uses {word}, and is open to everybody");
    }
}

#[test]
fn routes_are_found_in_every_form_of_declaration() {
    let mut routes = Routes::default();
    routes.read_text(
        "a.rs",
        r#"
        #[utoipa::path(post, operation_id = "x", path = "/api/admin/one/{id}", params(("id" = Uuid, Path)))]
        async fn one() {}
        fn routes() {
            Router::new().route("/internal/two", get(two).post(three).delete(four)).layer(x);
            Router::new().route("/internal/five", axum::routing::put(five)).with_state(y);
            Router::new().route(path, get(six)).route("/internal/seven", any(seven)).nest("/internal", z);
        }
        "#,
    );
    let found: Vec<_> = routes.found.iter().map(|(method, path)| format!("{method} {path}")).collect();
    let wanted = [
        "DELETE /internal/two",
        "GET /internal/two",
        "POST /api/admin/one/{id}",
        "POST /internal/two",
        "PUT /internal/five",
    ];
    assert_eq!(found, wanted);
    assert_eq!(routes.unclear.len(), 3, "{:#?}", routes.unclear);
}

impl Routes {
    fn read(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" && name != "testing" {
                self.read(&path);
            } else if name.ends_with(".rs") && name != PAGES {
                self.read_text(&path.display().to_string(), &std::fs::read_to_string(&path).expect("a file"));
            }
        }
    }

    fn read_text(&mut self, name: &str, text: &str) {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        Reading { routes: self, file: name }.visit_file(&file);
    }
}

struct Reading<'a> {
    routes: &'a mut Routes,
    file: &'a str,
}

impl Reading<'_> {
    fn unclear(&mut self, what: &str) {
        self.routes.unclear.push(format!("{}: {what}", self.file));
    }

    /// Lists the methods of `get(a).post(b)`.
    fn methods(&mut self, of: &Expr) -> Vec<String> {
        if let Expr::MethodCall(ExprMethodCall { receiver, method, .. }) = of {
            let mut methods = self.methods(receiver);
            methods.extend(self.method(&method.to_string()));
            return methods;
        }
        if let Expr::Call(ExprCall { func, .. }) = of
            && let Expr::Path(path) = func.as_ref()
        {
            let last = path.path.segments.last().map(|segment| segment.ident.to_string());
            return self.method(&last.unwrap_or_default());
        }
        self.method("something else than a method")
    }

    fn method(&mut self, name: &str) -> Vec<String> {
        if METHODS.contains(&name) {
            return vec![name.to_uppercase()];
        }
        self.unclear(&format!("a route by `{name}`"));
        vec![]
    }
}

impl<'ast> Visit<'ast> for Reading<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        for attribute in &function.attrs {
            let names: Vec<_> = attribute.path().segments.iter().map(|part| part.ident.to_string()).collect();
            if names != ["utoipa", "path"] {
                continue;
            }
            let text = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
            let method = text.split(',').next().unwrap_or_default().trim().to_owned();
            let path = text.split(", path = \"").nth(1).and_then(|rest| rest.split('"').next());
            match path {
                Some(path) if METHODS.contains(&method.as_str()) => {
                    self.routes.found.insert((method.to_uppercase(), path.to_owned()));
                }
                Some(_) | None => self.unclear(&format!("utoipa::path of {}", function.sig.ident)),
            }
        }
        visit_item_fn(self, function);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let name = call.method.to_string();
        if name == "route" {
            match (call.args.first(), call.args.get(1)) {
                (Some(Expr::Lit(ExprLit { lit: Lit::Str(path), .. })), Some(handlers)) => {
                    let methods = self.methods(handlers);
                    let found = methods.into_iter().map(|method| (method, path.value()));
                    self.routes.found.extend(found.collect::<Vec<_>>());
                }
                _ => self.unclear("a route whose path is not written out"),
            }
        }
        if ["nest", "nest_service", "route_service"].contains(&name.as_str()) {
            self.unclear(&format!("`{name}`, whose paths are written elsewhere"));
        }
        visit_expr_method_call(self, call);
    }
}
