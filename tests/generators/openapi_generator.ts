// Uses what openapi-generator generated for TypeScript: profile, calibrate, submit, follow, fetch and verify.
// It gets the service's address, a key and the requests, and what it got goes to standard output.
import { CalculatorsApi, CertificatesApi, Configuration, JobsApi } from "./client/index";
import { CalibrationRequestFromJSON, CalibrationToJSON, JobSubmissionFromJSON, ProfileRequestFromJSON, ProfileToJSON } from "./client/index";
import { JobToJSON, VerificationReportToJSON } from "./client/index";

declare const process: { argv: string[] };

async function main(address: string, key: string, requests: any): Promise<unknown> {
  const configuration = new Configuration({ basePath: address, accessToken: key });
  const calculators = new CalculatorsApi(configuration);
  const jobs = new JobsApi(configuration);
  const certificates = new CertificatesApi(configuration);
  const profile = await calculators.createProfile({ profileRequest: ProfileRequestFromJSON(requests.profile) });
  const calibration = await calculators.createCalibration({ calibrationRequest: CalibrationRequestFromJSON(requests.calibration) });
  const short = await calculators.accountDpSgd({
    noiseMultiplier: requests.short.noise_multiplier,
    samplingProbability: requests.short.sampling_probability,
    steps: requests.short.steps,
    delta: requests.short.delta,
  });
  const job = await jobs.submitJob({ jobSubmission: JobSubmissionFromJSON(requests.job) });
  const followed = await jobs.streamEvents({ jobId: job.id });
  const ended = await jobs.readJob({ jobId: job.id });
  const fetched = await certificates.getCertificateRaw({ certificateId: ended.certificate as string });
  const bytes = await fetched.raw.clone().blob();
  const envelope = JSON.parse(await bytes.text());
  const report = await certificates.verifyCertificate({ body: bytes });
  return {
    profile: ProfileToJSON(profile),
    calibration: CalibrationToJSON(calibration),
    short: short.kind === "profile" ? { kind: short.kind, profile: ProfileToJSON(short.profile) } : short,
    followed,
    job: JobToJSON(ended),
    payload_type: envelope.payloadType,
    report: VerificationReportToJSON(report),
  };
}

main(process.argv[2], process.argv[3], JSON.parse(process.argv[4])).then((answer) => console.log(JSON.stringify(answer)));
