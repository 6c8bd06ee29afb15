import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Files whose few lines take minutes. Begun last, they would run alone at the end. */
const LONG = ["test/defences/defences.test.ts", "test/update.test.ts"];

/** Runs those first, and the others as vitest orders them: by size as long as no times are known. */
export class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const [long, others] = [true, false].map((isLong) =>
      sorted.filter(({ moduleId }) => LONG.some((file) => moduleId.endsWith(file)) === isLong),
    ) as [TestSpecification[], TestSpecification[]];
    return [...long, ...others];
  }
}
