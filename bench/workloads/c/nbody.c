#define N 5
static double X[N]={0,4.84,8.34,12.89,15.37},Y[N]={0,-1.16,4.12,-15.11,-25.9},Z[N]={0,-.10,-.4,-.22,.179},VX[N]={0,.6,-1.01,1.08,.97},VY[N]={0,2.8,1.8,.86,.59},VZ[N]={0,-.02,.008,-.01,-.03},M[N]={39.47,.037,.011,.0017,.002};
__attribute__((export_name("run"))) int run(int steps) {
	for (int s = 0; s < steps; s++) {
		for (int i = 0; i < N; i++)
			for (int j = i + 1; j < N; j++) {
				double dx=X[i]-X[j],dy=Y[i]-Y[j],dz=Z[i]-Z[j],d=dx*dx+dy*dy+dz*dz,m=0.001/(d*__builtin_sqrt(d));
				VX[i]-=dx*M[j]*m;VY[i]-=dy*M[j]*m;VZ[i]-=dz*M[j]*m;VX[j]+=dx*M[i]*m;VY[j]+=dy*M[i]*m;VZ[j]+=dz*M[i]*m;
			}
		for (int i = 0; i < N; i++) { X[i]+=.001*VX[i];Y[i]+=.001*VY[i];Z[i]+=.001*VZ[i]; }
	}
	return (int)(X[1]*1e6);
}
