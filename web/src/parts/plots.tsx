/** Small plots, drawn as SVG: no library, no script of others. */

import { figure } from "../words";

/** A line through points that are evenly apart. */
export function Spark(props: { values: number[]; label: string; width?: number; height?: number }) {
  const { values, width = 160, height = 36 } = props;
  if (values.length < 2) return null;
  const low = Math.min(...values);
  const high = Math.max(...values);
  const spread = high - low || 1;
  const points = values.map((value, at) => {
    const x = (at / (values.length - 1)) * (width - 2) + 1;
    const y = height - 3 - ((value - low) / spread) * (height - 6);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  return (
    <svg class="plot" width={width} height={height} role="img" aria-label={props.label}>
      <polyline points={points.join(" ")} />
    </svg>
  );
}

/** How often values fall into each of some stretches. */
export function Histogram(props: {
  counts: number[];
  low: number | null;
  high: number | null;
  label: string;
}) {
  const { counts } = props;
  const most = Math.max(1, ...counts);
  const step = 120 / counts.length;
  return (
    <svg class="plot" width={120} height={36} role="img" aria-label={props.label}>
      <title>
        {figure(props.low)} to {figure(props.high)}
      </title>
      {counts.map((count, at) => (
        <rect
          key={at}
          x={at * step}
          width={Math.max(1, step - 1)}
          y={35 - (count / most) * 34}
          height={Math.max(count ? 1 : 0, (count / most) * 34)}
        />
      ))}
    </svg>
  );
}
