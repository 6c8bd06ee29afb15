//! A keystore of Java, for the tests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Made by `keytool -importcert -storetype JKS` of Java 17, with one certificate as `debian:a.pem`.
const JAVA_KEYSTORE: &str = concat!(
    "/u3+7QAAAAIAAAABAAAAAgAMZGViaWFuOmEucGVtAAABohXjGLYABVguNTA5AAABcjCCAW4wggEVoAMCAQICFHScLfvKlsn650i0RP6z",
    "0E/42/GvMAoGCCqGSM49BAMCMAwxCjAIBgNVBAMMAWEwIBcNMjYxMTI2MDMyNTMzWhgPMjEyNjExMDIwMzI1MzNaMAwxCjAIBgNVBAMM",
    "AWEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARd6YWIT/vKD5F2VSrjNYZKtokbZngIOaAvQGdwpziqAOj2jVyLsvKm3nOPytLqL7Gt",
    "y7vAOg0sASkLLYeoWR8Ro1MwUTAdBgNVHQ4EFgQUCBU7PHD9p4zjAVZw00ErGfvjt4swHwYDVR0jBBgwFoAUCBU7PHD9p4zjAVZw00Er",
    "Gfvjt4swDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiB2KaX8r2vNvnAZ5oE+tcj445OAhj4ChoI+Wa15P/PUDQIgO7YQ",
    "N14pWBV3ebsR3CdbA2iKdHOTx1cWxEoOKQ2drV2dALVMZNJ1BVEq0msKxc0+HEbKgg==",
);

pub fn java_keystore() -> Vec<u8> {
    STANDARD.decode(JAVA_KEYSTORE).unwrap()
}
