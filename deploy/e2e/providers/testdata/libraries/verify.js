// Asks the providers' own libraries. A line of stdin is a request as JSON; a line of stdout is the answer: "accepted", "signature" (refused
// for its signature or its time) or "other" (refused for another reason).
import { createInterface } from "node:readline";
import querystring from "node:querystring";
import { verify as verifyGitHub } from "@octokit/webhooks-methods";
import sendgrid from "@sendgrid/eventwebhook";
import { Webhook as StandardWebhook } from "standardwebhooks";
import Stripe from "stripe";
import { Webhook as SvixWebhook } from "svix";
import twilio from "twilio";

const stripe = new Stripe("sk_test_none");
const events = new sendgrid.EventWebhook();

// Each returns false, or throws, for what it refuses.
const libraries = {
  stripe: (r, body) => stripe.webhooks.constructEvent(body.toString(), r.headers["Stripe-Signature"] ?? "", r.secret),
  svix: (r, body) => new SvixWebhook(r.secret).verify(body.toString(), lower(r.headers)),
  standardwebhooks: (r, body) => new StandardWebhook(r.secret).verify(body.toString(), lower(r.headers)),
  octokit: (r, body) => verifyGitHub(r.secret, body.toString(), r.headers["X-Hub-Signature-256"] ?? ""),
  twilio: (r, body) => {
    const signature = r.headers["X-Twilio-Signature"] ?? "";
    return new URL(r.url).searchParams.has("bodySHA256")
      ? twilio.validateRequestWithBody(r.secret, signature, r.url, body.toString())
      : twilio.validateRequest(r.secret, signature, r.url, { ...querystring.parse(body.toString()) });
  },
  sendgrid: (r, body) => events.verifySignature(
    events.convertPublicKeyToECDSA(r.secret), body,
    r.headers["X-Twilio-Email-Event-Webhook-Signature"] ?? "", r.headers["X-Twilio-Email-Event-Webhook-Timestamp"] ?? "",
  ),
};

function lower(headers) {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}

async function ask(r) {
  const body = Buffer.from(r.body, "base64");
  try {
    return (await libraries[r.library](r, body)) === false ? "signature" : "accepted";
  } catch (err) {
    if (err instanceof SyntaxError) {
      return "accepted"; // a signature that is right, of a body that is no JSON
    }
    // An empty body is refused before its signature is looked at.
    return body.length === 0 && ["stripe", "octokit"].includes(r.library) ? "other" : "signature";
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(await ask(JSON.parse(line)));
}
