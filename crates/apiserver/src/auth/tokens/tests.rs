use super::*;

const URL: &str = "https://kubernetes.default.svc";

fn issuer() -> Issuer {
    Issuer::from_pem(&Issuer::generate_pem().expect("a key"), URL).expect("an issuer")
}

fn claims(now: Timestamp) -> Claims {
    Claims {
        aud: vec![URL.into()],
        exp: now.as_second() + 600,
        iat: now.as_second(),
        iss: URL.into(),
        jti: "id".into(),
        kubernetes: Bindings {
            namespace: "default".into(),
            serviceaccount: Reference {
                name: "robot".into(),
                uid: "u".into(),
            },
            ..Bindings::default()
        },
        nbf: now.as_second(),
        sub: "system:serviceaccount:default:robot".into(),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

#[test]
fn a_signed_token_gives_its_claims_back() {
    let issuer = issuer();
    let token = issuer.sign(&claims(at(1000))).expect("a token");
    let (read, shared) = issuer.verify(&token, &[URL.into()], at(1300)).expect("a valid token");
    assert_eq!(read, claims(at(1000)));
    assert_eq!(shared, [URL]);
}

#[test]
fn a_token_of_another_key_audience_or_time_is_refused() {
    let issuer = issuer();
    let token = issuer.sign(&claims(at(1000))).expect("a token");
    let verify = |token: &str, audience: &str, now| {
        issuer
            .verify(token, &[audience.to_string()], at(now))
            .expect_err("refused")
    };
    assert_eq!(verify(&token, URL, 1000 + 600 + 61), TokenError::Expired);
    assert_eq!(verify(&token, URL, 900), TokenError::NotYetValid);
    assert_eq!(
        verify(&token, "foo", 1000).to_string(),
        r#"token audiences ["https://kubernetes.default.svc"] is invalid for the target audiences ["foo"]"#
    );
    assert_eq!(verify(&format!("{token}x"), URL, 1000), TokenError::Signature);
    assert_eq!(verify("nonsense", URL, 1000), TokenError::Foreign);
    assert_eq!(verify(&".".repeat(100_000), URL, 1000), TokenError::Foreign);
    let other = self::issuer().sign(&claims(at(1000))).expect("a token");
    assert_eq!(verify(&other, URL, 1000), TokenError::Signature);
}

#[test]
fn a_token_that_claims_no_signature_is_refused() {
    let issuer = issuer();
    let claims = URL_SAFE_NO_PAD.encode(serde_json::to_string(&claims(at(1000))).expect("JSON"));
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let refused = issuer.verify(&format!("{header}.{claims}."), &[URL.into()], at(1000));
    assert_eq!(refused.expect_err("refused"), TokenError::Foreign);
}

#[test]
fn the_published_key_verifies_what_the_private_one_signs() {
    let issuer = issuer();
    let token = issuer.sign(&claims(at(1000))).expect("a token");
    let set = issuer.key_set();
    let key = &set["keys"][0];
    let coordinate = |name: &str| {
        URL_SAFE_NO_PAD
            .decode(key[name].as_str().expect("a coordinate"))
            .expect("base64")
    };
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    let (signed, signature) = token.rsplit_once('.').expect("three parts");
    let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64");
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(signed.as_bytes(), &signature)
        .expect("valid");
}

proptest::proptest! {
    #[test]
    fn no_text_panics_the_verifier(text in "\\PC{0,200}") {
        proptest::prop_assert!(issuer().verify(&text, &[URL.into()], at(0)).is_err());
    }
}
